"""Encode questions that arrive together in one pass.

Failure this prevents: under load each question pays alone for reading the model's weights, and a queue without a bound
turns a burst into memory and into answers nobody waits for any more.

While a batch is encoded the next one gathers. A question waits for company only if others were about a moment ago, and
at most `delay_seconds` from its arrival; on an idle system it is encoded at once. Questions whose callers gave up are
dropped before encoding. A bounded number waits; more are refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from standard import spans
from standard.domain.errors import EmbedderUnavailable, Overloaded
from standard.embedding.protocol import checked_query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from standard.embedding.protocol import Embedder, PassageInput, PassageVectors
    from standard.spans import Span

# A long question takes as long as many short ones: a batch holds at most so many characters, unless one alone has more.
_BATCH_CHARS = 8192
_PACE_WEIGHT = 0.2


@dataclass(eq=False, slots=True)
class _Request:
    """Texts of one caller, waiting; `arrived` is loop time, `span` where in the caller's trace that is."""

    texts: list[str]
    arrived: float
    vectors: asyncio.Future[NDArray[np.float32]]
    span: Span | None
    chars: int = field(init=False)

    def __post_init__(self) -> None:
        self.chars = sum(map(len, self.texts))


class MicroBatcher:
    """Gathers calls into batches for `encode`, which turns texts into (n, d); `parallel` batches run at once.

    For `company_seconds` after a batch of several callers their return is expected.

    An async context manager: leaving it ends everything, and those who wait get EmbedderUnavailable.
    """

    def __init__(
        self,
        encode: Callable[[list[str]], Awaitable[NDArray[np.float32]]],
        *,
        max_batch: int = 32,
        max_queued: int = 1024,
        delay_seconds: float = 0.001,
        parallel: int = 1,
        company_seconds: float = 0.05,
    ) -> None:
        self._encode = encode
        self._max_batch = min(max_batch, max_queued)
        self._max_queued = max_queued
        self._delay = delay_seconds
        self._parallel = parallel
        self._queue: dict[_Request, None] = {}
        self._queued = 0
        self._arrival = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._company = 1
        self._company_until = 0.0
        self._company_seconds = company_seconds
        self._pace = 0.0

    async def __aenter__(self) -> Self:
        self._workers = [asyncio.create_task(self._work(), name="embed-batches") for _ in range(self._parallel)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        for request in list(self._queue):
            _refuse(request)

    @property
    def queued(self) -> int:
        """Texts that wait now."""
        return self._queued

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of `texts`, (n, d). More than `max_batch` go in slices, one after another.

        Raises Overloaded where the queue has no room, EmbedderUnavailable once closed, and what `encode` raises.
        """
        if not texts:
            return await self._encode([])
        size = self._max_batch
        slices = [list(texts[first : first + size]) for first in range(0, len(texts), size)]
        parts = [await self._submit(part) for part in slices]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    async def _submit(self, texts: list[str]) -> NDArray[np.float32]:
        if not self._workers:
            raise EmbedderUnavailable("the embedder was closed")
        if self._queued + len(texts) > self._max_queued:
            raise Overloaded(
                f"{self._queued} questions wait to be embedded already (embedding.max_queued {self._max_queued})",
                retry_after_seconds=max(self._queued * self._pace, 0.05),
            )
        loop = asyncio.get_running_loop()
        request = _Request(texts, loop.time(), loop.create_future(), spans.current())
        self._queue[request] = None
        self._queued += len(texts)
        self._arrival.set()
        try:
            return await request.vectors
        finally:
            self._leave(request)

    def _leave(self, request: _Request) -> None:
        if request in self._queue:
            del self._queue[request]
            self._queued -= len(request.texts)

    async def _work(self) -> None:
        while True:
            await self._until(1, None)
            if self._delay > 0 and asyncio.get_running_loop().time() < self._company_until:
                await self._until(self._company, next(iter(self._queue)).arrived + self._delay)
            batch = self._take()
            if batch:
                await self._run(batch)

    async def _until(self, texts: int, deadline: float | None) -> None:
        """Wait until so many texts are queued, or for the deadline (loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                while self._queued < texts:
                    self._arrival.clear()
                    await self._arrival.wait()
        except TimeoutError:
            return

    def _take(self) -> list[_Request]:
        """Take the oldest requests that fit into a batch off the queue."""
        batch: list[_Request] = []
        texts = chars = 0
        for request in self._queue:
            texts += len(request.texts)
            chars += request.chars
            if batch and (texts > self._max_batch or chars > _BATCH_CHARS):
                break
            batch.append(request)
        for request in batch:
            self._leave(request)
        return batch

    async def _encoded(self, texts: list[str], batch: list[_Request]) -> NDArray[np.float32]:
        # A batch belongs to several traces: it goes on in that of one, and points to the others.
        traced = [each.span for each in batch if each.span is not None and not each.vectors.done()]
        leader = next((span for span in traced if span.recording), traced[0] if traced else None)
        spans.enter(leader)  # of this task alone
        if leader is not None and leader.recording:
            for span in traced:
                if span.trace_id != leader.trace_id:
                    leader.link(span.headers().get("traceparent", ""))
        vectors = await self._encode(texts)
        if len(vectors) != len(texts):
            raise EmbedderUnavailable(f"the embedder gave {len(vectors)} vectors for {len(texts)} texts")
        return vectors

    async def _run(self, batch: list[_Request]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        texts = [text for request in batch for text in request.texts]
        job = asyncio.create_task(self._encoded(texts, batch))

        def give_up(_: object) -> None:
            # Nobody waits any more: an endpoint's call is worth cancelling.
            if all(request.vectors.done() for request in batch):
                job.cancel()

        for request in batch:
            request.vectors.add_done_callback(give_up)
        try:
            await asyncio.wait([job])
        finally:
            if not job.done():
                job.cancel()
                await asyncio.wait([job])
            _deliver(batch, job)
        ended = loop.time()
        self._pace += _PACE_WEIGHT * ((ended - began) / max(len(texts), 1) - self._pace)
        self._company = len(texts)
        self._company_until = ended + self._company_seconds if len(batch) > 1 else 0.0


class BatchedEmbedder:
    """An Embedder whose questions go through a MicroBatcher."""

    def __init__(self, embedder: Embedder, batcher: MicroBatcher) -> None:
        self._embedder = embedder
        self._batcher = batcher

    @property
    def id(self) -> str:
        """The embedder's."""
        return self._embedder.id

    @property
    def checksum(self) -> str:
        """The embedder's."""
        return self._embedder.checksum

    @property
    def dimensions(self) -> int:
        """The embedder's."""
        return self._embedder.dimensions

    @property
    def max_tokens(self) -> int:
        """The embedder's."""
        return self._embedder.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text; see Embedder."""
        return self._embedder.count_tokens(texts)

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of questions; see Embedder. A bad one is refused here, before it can fail a batch of others."""
        return await self._batcher.embed([checked_query(text) for text in texts])

    async def embed_passages(self, passages: Sequence[PassageInput]) -> PassageVectors:
        """Vectors of passages and their sentences; see Embedder."""
        return await self._embedder.embed_passages(passages)


def _deliver(batch: list[_Request], job: asyncio.Future[NDArray[np.float32]]) -> None:
    """Hand each caller its rows, or the error all of them share."""
    error = None if job.cancelled() else job.exception()
    first = 0
    for request in batch:
        last = first + len(request.texts)
        if request.vectors.done():
            pass
        elif job.cancelled():
            _refuse(request)
        elif error is not None:
            request.vectors.set_exception(error)
        else:
            request.vectors.set_result(job.result()[first:last])
        first = last


def _refuse(request: _Request) -> None:
    if not request.vectors.done():
        request.vectors.set_exception(EmbedderUnavailable("the embedder was closed"))
