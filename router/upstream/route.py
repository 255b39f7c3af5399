"""The standard route with an upstream: it answers, or it stands in for a model that failed before its first word.

Whatever happens, a question is answered by one of the two: upstream, else ours; ours, else upstream, else what ours
makes of the passages alone. After the first word nobody stands in for anybody: what came stays, with a notice. Who
stood in for whom is told by a notice of the answer, not only by an event. A question whose caller may not see all that
the upstream knows (a filter, access groups) is ours alone.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from router.upstream.ending import Ending
from router.upstream.failures import UpstreamBrokeOff, UpstreamUnavailable
from standard.domain.answer import AnswerSource, Outcome, StopReason
from standard.domain.event import Degraded, PassagesScreened, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.pipeline import OUT_OF_TIME, OUT_OF_TIME_BEFORE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from router.parts import RouteHandler
    from router.upstream.client import UpstreamClient
    from standard.domain.event import Emit, EventBody
    from standard.domain.passage import SearchResult
    from standard.domain.question import Question

UPSTREAM_AWAY: Final = "The existing search service did not answer; the answer was made without it."
UPSTREAM_NO_TIME: Final = "There was no time for the existing search service; the answer was made without it."
UPSTREAM_BROKE_OFF: Final = "The existing search service broke off; the answer may be incomplete."
UPSTREAM_ASKED_BACK: Final = "The existing search service asked back; ask again with what it wants to know."
STOOD_IN: Final = "The language model did not answer; the existing search service did."
_REASONS: Final = {
    Outcome.ANSWERED: StopReason.SUFFICIENT,
    Outcome.ANSWERED_WITH_CAVEAT: StopReason.SUFFICIENT,
    Outcome.NEEDS_CLARIFICATION: StopReason.NEEDS_INPUT,
    Outcome.UNANSWERABLE: StopReason.NO_EVIDENCE,
    Outcome.BLOCKED: StopReason.OUTPUT_BLOCKED,
}
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
        if not upstream.may_see(question.scope):
            return await ours(question, vector, first, emit=emit, may_escalate=may_escalate)
        question = _timed(question)
        try:
            return await _pass_through(upstream, question, emit, ())
        except UpstreamUnavailable as error:
            _log.warning("the upstream did not answer", kind=error.kind, error=error.message)
            notice = _away(error)
            await emit(Degraded("upstream", notice))
        result = await ours(question, vector, first, emit=emit, may_escalate=may_escalate)
        return _with_notices(result, (notice,))

    return handle


def upstream_fallback(upstream: UpstreamClient, ours: RouteHandler, without_model: RouteHandler) -> RouteHandler:
    """Ours; where its model fails before the first word the upstream, and where that fails too `without_model`."""

    async def handle(
        question: Question, vector: NDArray[np.float32], first: SearchResult, *, emit: Emit, may_escalate: bool
    ) -> RouteResult:
        if not upstream.may_see(question.scope):
            return await ours(question, vector, first, emit=emit, may_escalate=may_escalate)
        question = _timed(question)
        begun = False
        screened: list[PassagesScreened] = []

        async def once(body: EventBody) -> None:
            # Both handlers of ours screen the same passages; their findings are counted once.
            if isinstance(body, PassagesScreened):
                if body in screened:
                    return
                screened.append(body)
            await emit(body)

        async def watched(body: EventBody) -> None:
            nonlocal begun
            if isinstance(body, Degraded) and body.dependency == "llm" and not begun:
                raise _ModelFailed(body)
            begun = begun or isinstance(body, TokenEmitted)
            await once(body)

        try:
            return await ours(question, vector, first, emit=watched, may_escalate=may_escalate)
        except _ModelFailed as failed:
            told = failed.body
        try:
            return await _pass_through(upstream, question, emit, (STOOD_IN,))
        except UpstreamUnavailable as error:
            _log.warning("neither the model nor the upstream answered", kind=error.kind, error=error.message)
            notice = _away(error)
            await emit(told)
            await emit(Degraded("upstream", notice))
        result = await without_model(question, vector, first, emit=once, may_escalate=False)
        reason = StopReason.TIME_BUDGET if told.notice == OUT_OF_TIME_BEFORE else StopReason.LLM_UNAVAILABLE
        return _with_notices(result, (told.notice, notice), reason)

    return handle


def _timed(question: Question) -> Question:
    """The question with its budget of seconds in its deadline: each of those who answer it has what others left."""
    seconds = question.budget.max_seconds
    if seconds is None:
        return question
    by = asyncio.get_running_loop().time() + seconds
    return replace(question, deadline=by if question.deadline is None else min(by, question.deadline))


def _away(error: UpstreamUnavailable) -> str:
    return UPSTREAM_NO_TIME if error.kind == "deadline" else UPSTREAM_AWAY


def _with_notices(result: RouteResult, notices: tuple[str, ...], reason: StopReason | None = None) -> RouteResult:
    """The result of ours with what its reader should know; `reason` is why it ended where the guard did not end it."""
    if result.escalate or result.outcome is Outcome.BLOCKED:
        return result
    caveat = result.outcome is Outcome.ANSWERED
    return replace(
        result,
        outcome=Outcome.ANSWERED_WITH_CAVEAT if caveat else result.outcome,
        stop_reason=reason or result.stop_reason,
        notices=(*notices, *result.notices),
    )


async def _pass_through(
    upstream: UpstreamClient, question: Question, emit: Emit, notices: tuple[str, ...]
) -> RouteResult:
    """The upstream's words as they come, then its outcome and notices. Raises UpstreamUnavailable before the first."""
    words: list[str] = []
    ending, broke = Ending(), None
    try:
        async with aclosing(upstream.answer(question)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Ending):
                    ending = piece
                    continue
                if not piece:
                    continue
                if not words and notices:
                    await emit(Degraded("llm", notices[0]))
                words.append(piece)
                await emit(TokenEmitted(piece))
    except UpstreamBrokeOff as error:
        _log.warning("the upstream broke off", kind=error.kind, error=error.message)
        late = error.kind == "deadline"
        notice = OUT_OF_TIME if late else UPSTREAM_BROKE_OFF
        await emit(Degraded("upstream", notice))
        notices, broke = (*notices, notice), StopReason.TIME_BUDGET if late else StopReason.LLM_UNAVAILABLE
    told = ending.outcome or Outcome.ANSWERED
    reason = broke or _REASONS[told]
    if told is Outcome.NEEDS_CLARIFICATION:  # its run waits there, not here: nothing of ours could take a reply
        told, notices = Outcome.ANSWERED_WITH_CAVEAT, (*notices, UPSTREAM_ASKED_BACK)
    outcome = Outcome.ANSWERED_WITH_CAVEAT if notices and told is Outcome.ANSWERED else told
    return RouteResult("".join(words), AnswerSource.UPSTREAM, outcome, reason, notices=(*notices, *ending.notices))
