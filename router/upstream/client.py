"""Calls an existing RAG endpoint through its contract: bounded in time, size and number, and given up on in time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final, Protocol

from router.upstream.failures import (
    Malformed,
    Retryable,
    UpstreamBrokeOff,
    UpstreamUnavailable,
    failure_of,
    out_of_time,
)
from router.upstream.waits import next_by
from standard.resilience import Breaker, RetryBudget

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from router.settings import UpstreamSettings
    from router.upstream.ending import Ending
    from standard.domain.passage import Scope
    from standard.domain.question import Question

_BACKOFF_SECONDS: Final = 0.05
RESERVE_SECONDS: Final = 0.3
"""Kept back of a question's time, so that ours can still answer of the passages."""
MIN_SECONDS: Final = 0.2
"""With less left of a question's time the upstream is not called."""


class Endpoint(Protocol):
    """What is called: over HTTP or over gRPC."""

    @property
    def sends(self) -> frozenset[str]:
        """The names of the values that a call sends."""
        ...

    def pieces(self, question: Question) -> AsyncGenerator[str | Ending]:
        """Call it once and yield the answer's text as it comes, then what it told of its end. Leaving ends the call.

        Raises Retryable before the first byte, UpstreamUnavailable, Malformed, and TimeoutError for one of its waits.
        """
        ...


class UpstreamClient:
    """Asks the upstream. One for the process; safe for concurrent use."""

    def __init__(self, settings: UpstreamSettings, endpoint: Endpoint) -> None:
        self._settings = settings
        self._endpoint = endpoint
        clock = asyncio.get_running_loop().time
        self._breaker = Breaker(settings.breaker_failures, settings.breaker_seconds, clock)
        self._budget = RetryBudget(settings.retry_budget)
        self._calls = 0

    async def alive(self) -> None:
        """Raise UpstreamUnavailable while it is left alone."""
        if self._breaker.open:
            raise UpstreamUnavailable("the upstream failed repeatedly and is left alone for a while", kind="open")

    def may_see(self, scope: Scope) -> bool:
        """Whether the upstream may answer for a caller: it knows neither filters nor access groups.

        A caller who may see only some collections is answered where the contract tells the upstream the collection.
        """
        told = "collection" in self._endpoint.sends
        return scope.filter is None and not scope.groups and (not scope.narrowed or told)

    async def answer(self, question: Question) -> AsyncGenerator[str | Ending]:
        """Yield the answer's text as it comes, by the question's deadline less RESERVE_SECONDS.

        Last comes what the upstream told of the answer's end, where it told of it.
        Raises UpstreamUnavailable before any text, UpstreamBrokeOff after some. Leaving the iteration ends the call.
        """
        if self._calls >= self._settings.max_concurrency:
            raise UpstreamUnavailable("too many calls of the upstream are under way", kind="busy")
        self._calls += 1
        self._budget.called()
        try:
            for attempt in range(self._settings.retries + 1):
                try:
                    async with contextlib.aclosing(self._attempt(question)) as pieces:
                        async for piece in pieces:
                            yield piece
                    return
                except Retryable as retryable:
                    if attempt == self._settings.retries or self._breaker.open or not self._budget.take():
                        raise retryable.error from None
                await asyncio.sleep(_BACKOFF_SECONDS * 2**attempt * (0.5 + random.random()))  # noqa: S311 - jitter
        finally:
            self._calls -= 1

    async def _attempt(self, question: Question) -> AsyncGenerator[str | Ending]:
        """One call, told to the breaker."""
        if self._by(question)[0] - asyncio.get_running_loop().time() < MIN_SECONDS:
            raise out_of_time()
        if not self._breaker.allow():
            await self.alive()
            raise UpstreamUnavailable("another call tries whether the upstream is back", kind="open")
        told = some = False
        by, theirs = self._by(question)
        try:
            async with contextlib.aclosing(self._endpoint.pieces(question)) as pieces:
                # No timeout is open while a piece is out: it would cancel whoever reads.
                while (piece := await next_by(pieces, by)) is not None:
                    some = some or (isinstance(piece, str) and piece != "")
                    yield piece
            if not some:
                raise Malformed("it answered nothing")
            told = True
            self._breaker.succeeded()  # at its end: one that always breaks off is no sign of health
        except (TimeoutError, Malformed, UpstreamUnavailable, Retryable) as error:
            failure = failure_of(error)
            if theirs and failure.kind == "timeout" and asyncio.get_running_loop().time() >= by:
                failure = out_of_time()  # the question's own limit; `told` stays as it is
            else:
                told = True
                # A refusal is a sign of life; after a word it is a cut like any other.
                alive = failure.kind == "refused" and not some
                self._breaker.succeeded() if alive else self._breaker.failed()
            if some:
                kind = "deadline" if failure.kind == "deadline" else "cut"
                raise UpstreamBrokeOff(failure.message, kind=kind) from None
            if isinstance(error, Retryable):
                raise Retryable(failure) from None
            raise failure from None
        finally:
            if not told:  # cancelled, left by the reader, or out of the question's time
                self._breaker.abandoned()

    def _by(self, question: Question) -> tuple[float, bool]:
        """The event loop's time by which a call that starts now must end, and whether it is the question's limit."""
        ours = asyncio.get_running_loop().time() + self._settings.timeout_seconds
        if question.deadline is None:
            return ours, False
        return min(ours, question.deadline - RESERVE_SECONDS), question.deadline - RESERVE_SECONDS < ours
