"""A few threads for model calls, with an owner: work waits for the threads, never the event loop for the work."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from standard.domain.errors import EmbedderUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Workers:
    """`count` named threads. Cancelling a call drops its job, unless a thread is at it already."""

    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self._closed = threading.Event()

    async def run(self, job: Callable[[], T]) -> T:
        """Return what `job` returns. Raises what it raises, and EmbedderUnavailable once closed."""
        if self._closed.is_set():
            raise _closed()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, job)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed.is_set() and (task is None or not task.cancelling()):
                # The pool dropped the job; nobody asked this task to stop.
                raise _closed() from None
            raise

    async def close(self) -> None:
        """Drop the jobs that wait and wait for those at work."""
        self._closed.set()
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)


def _closed() -> EmbedderUnavailable:
    return EmbedderUnavailable("the embedder was closed")
