"""A bound on calls under way and on callers that wait, so that a slow model server cannot pile up work here."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from standard import spans
from standard.llm.failure import LlmOverloaded, late

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Slots:
    """`running` places and `waiting` places in the queue before them."""

    def __init__(self, running: int, waiting: int) -> None:
        self._places = asyncio.Semaphore(running)
        self._waiting_limit = waiting
        self._waiting = 0

    @asynccontextmanager
    async def hold(self, deadline: float) -> AsyncIterator[None]:
        """Hold a place. Raises LlmOverloaded where the queue is full, LlmUnavailable (timeout) at the deadline."""
        if self._places.locked():
            await self._wait(deadline)
        else:
            await self._places.acquire()
        try:
            yield
        finally:
            self._places.release()

    async def _wait(self, deadline: float) -> None:
        if self._waiting >= self._waiting_limit:
            raise LlmOverloaded(
                f"{self._waiting_limit} calls already wait for the model server; "
                "raise llm.max_concurrency or add capacity",
                retry_after_seconds=1.0,
            )
        self._waiting += 1
        began = spans.clock()
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            raise late("no free place among the calls to the model server").unavailable() from None
        finally:
            self._waiting -= 1
            spans.waited("wait for a place at the model", began)
