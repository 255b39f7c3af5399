"""How many questions are worked on at once, and how long others wait: bounded, measured, first come first served."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from standard import spans
from standard.domain.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.telemetry.metrics import Metrics


class Admission:
    """A bounded number of places and a bounded queue for them.

    `places` >= 1 questions at once; at most `queue` wait, each at most `timeout_seconds`; beyond that Overloaded, with
    advice on when to come back.
    """

    def __init__(self, places: int, queue: int, timeout_seconds: float, metrics: Metrics) -> None:
        self._semaphore = asyncio.Semaphore(places)
        self._queue = queue
        self._timeout = timeout_seconds
        self._waiting = 0
        self._metrics = metrics

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place for the duration of the block."""
        await self._acquire()
        self._metrics.inflight.inc()
        try:
            yield
        finally:
            self._metrics.inflight.dec()
            self._semaphore.release()

    async def _acquire(self) -> None:
        if not self._semaphore.locked():
            await self._semaphore.acquire()
            self._metrics.queue_seconds.observe(0.0)
            return
        if self._waiting >= self._queue:
            self._metrics.shed.labels("queue_full").inc()
            raise Overloaded("too many questions are waiting; try again shortly", retry_after_seconds=self._timeout)
        self._waiting += 1
        started, began = time.perf_counter(), spans.clock()
        try:
            async with asyncio.timeout(self._timeout):
                await self._semaphore.acquire()
        except TimeoutError:
            self._metrics.shed.labels("queue_timeout").inc()
            raise Overloaded(
                f"no place became free within {self._timeout:g} s; try again shortly",
                retry_after_seconds=self._timeout,
            ) from None
        finally:
            self._waiting -= 1
            spans.waited("wait for a place", began)
        self._metrics.queue_seconds.observe(time.perf_counter() - started)
