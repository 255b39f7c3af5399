"""The standard route with an upstream: it answers, or it stands in for a model that failed before its first word.

Whatever happens, a question is answered by one of the two: upstream, else ours; ours, else upstream, else what ours
makes of the passages alone. After the first word nobody stands in for anybody: what came stays, with a notice.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import structlog

from router.upstream.client import UpstreamBrokeOff, UpstreamUnavailable
from standard.domain.answer import AnswerSource, Outcome, StopReason
from standard.domain.event import Degraded, TokenEmitted
from standard.domain.outcome import RouteResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from router.parts import RouteHandler
    from router.upstream.client import UpstreamClient
    from standard.domain.event import Emit, EventBody
    from standard.domain.passage import SearchResult
    from standard.domain.question import Question

UPSTREAM_AWAY: Final = "The existing search service did not answer; the answer was made without it."
UPSTREAM_BROKE_OFF: Final = "The existing search service broke off; the answer may be incomplete."
STOOD_IN: Final = "The language model did not answer; the existing search service did."
_log = structlog.get_logger("pointsman.upstream")


class _ModelFailed(Exception):
    """Our model failed before its first word; `body` is what the route was about to tell."""

    def __init__(self, body: Degraded) -> None:
        super().__init__(body.notice)
        self.body = body


def upstream_first(upstream: UpstreamClient, ours: RouteHandler) -> RouteHandler:
    """The upstream as the standard route; ours answers where it fails before its first word."""

    async def handle(
        question: Question, vector: NDArray[np.float32], first: SearchResult, *, emit: Emit, may_escalate: bool
    ) -> RouteResult:
        try:
            return await _pass_through(upstream, question, emit, ())
        except UpstreamUnavailable as error:
            _log.warning("the upstream did not answer", kind=error.kind, error=error.message)
            await emit(Degraded("upstream", UPSTREAM_AWAY))
        return await ours(question, vector, first, emit=emit, may_escalate=may_escalate)

    return handle


def upstream_fallback(upstream: UpstreamClient, ours: RouteHandler, without_model: RouteHandler) -> RouteHandler:
    """Ours; where its model fails before the first word the upstream, and where that fails too `without_model`."""

    async def handle(
        question: Question, vector: NDArray[np.float32], first: SearchResult, *, emit: Emit, may_escalate: bool
    ) -> RouteResult:
        begun = False

        async def watched(body: EventBody) -> None:
            nonlocal begun
            if isinstance(body, Degraded) and body.dependency == "llm" and not begun:
                raise _ModelFailed(body)
            begun = begun or isinstance(body, TokenEmitted)
            await emit(body)

        try:
            return await ours(question, vector, first, emit=watched, may_escalate=may_escalate)
        except _ModelFailed as failed:
            told = failed.body
        try:
            return await _pass_through(upstream, question, emit, (STOOD_IN,))
        except UpstreamUnavailable as error:
            _log.warning("neither the model nor the upstream answered", kind=error.kind, error=error.message)
            await emit(told)
            await emit(Degraded("upstream", UPSTREAM_AWAY))
        return await without_model(question, vector, first, emit=emit, may_escalate=False)

    return handle


async def _pass_through(
    upstream: UpstreamClient, question: Question, emit: Emit, notices: tuple[str, ...]
) -> RouteResult:
    """The upstream's words as they come. Raises UpstreamUnavailable before the first."""
    words: list[str] = []
    reason = StopReason.SUFFICIENT
    try:
        async with aclosing(upstream.answer(question)) as pieces:
            async for piece in pieces:
                if not piece:
                    continue
                if not words and notices:
                    await emit(Degraded("llm", notices[0]))
                words.append(piece)
                await emit(TokenEmitted(piece))
    except UpstreamBrokeOff as error:
        _log.warning("the upstream broke off", kind=error.kind, error=error.message)
        await emit(Degraded("upstream", UPSTREAM_BROKE_OFF))
        notices, reason = (*notices, UPSTREAM_BROKE_OFF), StopReason.LLM_UNAVAILABLE
    return RouteResult(
        "".join(words),
        AnswerSource.UPSTREAM,
        Outcome.ANSWERED_WITH_CAVEAT if notices else Outcome.ANSWERED,
        reason,
        notices=notices,
    )
