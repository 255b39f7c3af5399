"""The standard route: one retrieval, one streamed call of a model, citations resolved on the way.

    passages -> those that may be shown, best at the edges, within the budget -> prompt -> stream -> text and citations

Whatever fails, there is an answer: without a model, or where it fails before its first word, sentences of the passages;
where it breaks off later, what it said so far, with a caveat; where nothing bears on the question, an abstention.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from standard.context import Limits, Plan, plan_call
from standard.domain.answer import AnswerSource, Outcome, StopReason, Usage
from standard.domain.errors import EmbedderUnavailable, InvalidInput, LlmUnavailable, Overloaded
from standard.domain.event import CitationMade, Degraded, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.extractive.extract import draft, finish, shipped_model
from standard.generation import Generated, generate
from standard.llm.protocol import LlmRequest, Purpose
from standard.llm.tokens import estimate_tokens
from standard.outlet import Blocked, Outlet
from standard.prompts import NO_ANSWER_FOUND, NOTHING_FOUND, answer_messages, answer_task
from standard.sandbox.guarded_llm import GuardedLlm, guarded
from standard.sandbox.render import with_marker
from standard.screening import extractable, screen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.context import ContextConfig
    from standard.domain.event import Emit
    from standard.domain.passage import RetrievedPassage, SearchResult
    from standard.domain.question import Question
    from standard.extractive.extract import Extraction, ExtractiveModel
    from standard.llm.config import Price
    from standard.llm.protocol import Llm

INSUFFICIENT = "insufficient"
"""Why the route hands over: the label `reason` of pointsman_escalations_total."""

LLM_AWAY = "The language model is not available; the answer is made of sentences of the sources."
LLM_BROKE_OFF = "The language model broke off; the answer may be incomplete."
OUT_OF_TIME = "Time ran out; the answer may be incomplete."
OUT_OF_TIME_BEFORE = "There was no time for the language model; the answer is made of sentences of the sources."
OUT_OF_TOKENS = "The answer reached its length limit and may be incomplete."
NO_TOKENS = "The token cap leaves no room for the language model; the answer is made of sentences of the sources."
NO_MONEY = "The cost cap leaves no room for the language model; the answer is made of sentences of the sources."
FILTERED = "The language model's content filter cut in; the answer may be incomplete."
IN_PART = "The sources answer the question only in part."
UNCITED = "The answer names no source."
WEAK_EVIDENCE = "The sources bear on the question only loosely."
WITHHELD = "Everything that was found was withheld by the injection scan."

_FALLBACK_SECONDS = 0.15
"""Kept back of the time limit, so that sentences of the sources can still be put together."""


class CompareSentences(Protocol):
    """Compares sentences with the question, where the caller has an embedder and the question's vector at hand."""

    def __call__(self, sentences: Sequence[str]) -> Awaitable[NDArray[np.float32]]:
        """Return the cosine of each sentence to the question (n,). May raise EmbedderUnavailable or Overloaded."""
        ...


@dataclass(frozen=True, slots=True)
class StandardConfig:
    """Knobs of the route.

    `timeout_seconds` bounds the model's call where the question brings no smaller limit; with less than
    `min_llm_seconds` left it is not called. `context` bounds the prompt. `price` is that of the answering model, for
    cost caps. `extractive` replaces the shipped model of extracted answers. `allowed_addresses` are those that may
    stand in an answer beside its sources'.
    """

    context: ContextConfig
    timeout_seconds: float = 60.0
    min_llm_seconds: float = 0.4
    price: Price | None = None
    extractive: ExtractiveModel | None = None
    allowed_addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Fallback:
    """Why there is no generated answer: what ended it and what people are told. Without a notice nothing failed."""

    reason: StopReason = StopReason.SUFFICIENT
    notice: str = ""


async def answer_standard(
    question: Question,
    first: SearchResult,
    *,
    llm: Llm | None,
    emit: Emit,
    config: StandardConfig,
    may_escalate: bool = False,
    compare: CompareSentences | None = None,
    on_dropped: Callable[[int], None] | None = None,
    clock: Callable[[], float] | None = None,
) -> RouteResult:
    """Answer from the first retrieval, emitting TokenEmitted, CitationMade and Degraded as they come.

    With `may_escalate` the route hands over (RouteResult.escalate, nothing emitted) where the model says, or the
    evidence suggests, that the passages do not hold the answer. `compare` improves extracted answers. `on_dropped` is
    told how many citations named no source. `clock` is the event loop's. What is emitted went through an Outlet; the
    model is asked with a canary (`guarded`). Raises nothing but what `emit` raises, and CancelledError.
    """
    clock = clock or asyncio.get_running_loop().time
    model = None if llm is None else guarded(llm)
    secret = None if model is None else model.secret(answer_task(may_hand_over=may_escalate))
    outlet = Outlet(emit, secret, config.allowed_addresses)
    limits, spent = _limits(question, clock), _Spent()
    route = _Route(question, first, model, outlet, config, may_escalate, compare, on_dropped, clock, limits, spent)
    try:
        result = await route.answer()
    except Blocked:
        return await outlet.close_blocked(AnswerSource.EXTRACTIVE, usage=spent.usage)
    return await outlet.close(result)


def _limits(question: Question, clock: Callable[[], float]) -> Limits:
    """The question's caps. `max_seconds` counts from here: what came before was retrieval, which is short."""
    budget, deadline = question.budget, question.deadline
    if budget.max_seconds is not None:
        by = clock() + budget.max_seconds
        deadline = by if deadline is None else min(deadline, by)
    return Limits(deadline, budget.max_tokens, budget.max_cost_usd)


@dataclass(slots=True)
class _Spent:
    """What the answer has cost so far, should it be blocked."""

    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class _Route:
    question: Question
    first: SearchResult
    llm: GuardedLlm | None
    emit: Outlet
    config: StandardConfig
    may_escalate: bool
    compare: CompareSentences | None
    on_dropped: Callable[[int], None] | None
    clock: Callable[[], float]
    limits: Limits
    spent: _Spent

    async def answer(self) -> RouteResult:
        admitted = screen(self.first)
        self.emit.screened(admitted.findings)
        retrieved = admitted.passages
        self.emit.allow(item.passage.uri for item in retrieved)
        used = Usage(retrieved_tokens=sum(estimate_tokens(item.passage.text.raw) for item in self.first.passages))
        self.spent.usage = used
        if not retrieved:
            notices = (WITHHELD,) if self.first.passages or self.first.withheld else ()
            return await self._abstain(used, NOTHING_FOUND, notices=notices, escalate=False)
        if self.llm is None:
            return await self._extracted(retrieved, used, _Fallback())
        seconds = self._seconds_left()
        if seconds < self.config.min_llm_seconds:
            return await self._extracted(retrieved, used, _Fallback(StopReason.TIME_BUDGET, OUT_OF_TIME_BEFORE))
        plan = plan_call(self.question, retrieved, self.limits, self.config.context, self.config.price)
        if plan.blocked_by is not None:
            notice = NO_MONEY if plan.blocked_by is StopReason.COST_BUDGET else NO_TOKENS
            return await self._extracted(retrieved, used, _Fallback(plan.blocked_by, notice))
        try:
            generated = await generate(self.llm, self._request(plan, seconds), plan.sources, self.emit)
        except LlmUnavailable as error:
            return await self._without_model(retrieved, used, error)
        return await self._generated(generated, used, plan)

    def _seconds_left(self) -> float:
        """Seconds that the model may take."""
        most = self.config.timeout_seconds
        if self.limits.deadline is None:
            return most
        return min(most, self.limits.deadline - self.clock() - _FALLBACK_SECONDS)

    def _request(self, plan: Plan, seconds: float) -> LlmRequest:
        messages = with_marker(
            lambda marker: answer_messages(
                plan.question,
                plan.history,
                plan.shown,
                marker,
                may_hand_over=self.may_escalate,
                style=self.question.style,
            )
        )
        return LlmRequest(Purpose.ANSWER, messages, max_tokens=plan.max_output_tokens, timeout_seconds=seconds)

    async def _without_model(
        self, retrieved: Sequence[RetrievedPassage], used: Usage, error: LlmUnavailable
    ) -> RouteResult:
        """The model failed before its first word."""
        late = error.kind == "timeout" and self._seconds_left() < self.config.min_llm_seconds
        fallback = (
            _Fallback(StopReason.TIME_BUDGET, OUT_OF_TIME_BEFORE)
            if late
            else _Fallback(StopReason.LLM_UNAVAILABLE, LLM_AWAY)
        )
        await self.emit(Degraded("llm", fallback.notice))
        return await self._extracted(retrieved, used, fallback)

    async def _generated(self, generated: Generated, used: Usage, plan: Plan) -> RouteResult:
        used += generated.usage
        self.spent.usage = used
        if generated.dropped and self.on_dropped is not None:
            self.on_dropped(generated.dropped)
        if generated.declined:
            return await self._abstain(used, NO_ANSWER_FOUND, source=AnswerSource.GENERATED)
        if generated.finish_reason == "blocked":
            return RouteResult("", AnswerSource.GENERATED, Outcome.BLOCKED, StopReason.OUTPUT_BLOCKED, usage=used)
        reason, notices = self._ending(generated, plan)
        return RouteResult(
            text=generated.text,
            source=AnswerSource.GENERATED,
            outcome=Outcome.ANSWERED_WITH_CAVEAT if notices else Outcome.ANSWERED,
            stop_reason=reason,
            citations=generated.citations,
            notices=notices,
            usage=used,
        )

    def _ending(self, generated: Generated, plan: Plan) -> tuple[StopReason, tuple[str, ...]]:
        """How a generated answer ended, and what its reader should know."""
        reason, notices = StopReason.SUFFICIENT, []
        match generated.finish_reason:
            case "cut" if self._seconds_left() <= 0:
                reason, notices = StopReason.TIME_BUDGET, [OUT_OF_TIME]
            case "cut":
                reason, notices = StopReason.LLM_UNAVAILABLE, [LLM_BROKE_OFF]
            case "length":
                capped = plan.capped_by or StopReason.TOKEN_BUDGET
                reason, notices = capped, [OUT_OF_TOKENS]
            case "content_filter":
                notices = [FILTERED]
            case _:
                pass
        if generated.partial:
            notices.append(IN_PART)
        if not generated.citations:
            notices.append(UNCITED)
        return reason, tuple(notices)

    async def _extracted(self, retrieved: Sequence[RetrievedPassage], used: Usage, fallback: _Fallback) -> RouteResult:
        """Answer with sentences of the passages, or abstain where these hardly bear on the question."""
        model = self.config.extractive or shipped_model()
        extraction = await self._extract(retrieved, model)
        notices = (fallback.notice,) if fallback.notice else ()
        if not extraction.text or extraction.evidence < model.abstain:
            may_escalate = self.may_escalate and not fallback.notice
            reason = fallback.reason if fallback.notice else StopReason.NO_EVIDENCE
            return await self._abstain(used, NO_ANSWER_FOUND, reason=reason, notices=notices, escalate=may_escalate)
        if extraction.evidence < model.caveat:
            notices = (*notices, WEAK_EVIDENCE)
        await self._emit_extraction(extraction)
        return RouteResult(
            text=extraction.text,
            source=AnswerSource.EXTRACTIVE,
            outcome=Outcome.ANSWERED_WITH_CAVEAT if notices else Outcome.ANSWERED,
            stop_reason=fallback.reason,
            citations=extraction.citations,
            notices=notices,
            usage=used,
        )

    async def _extract(self, retrieved: Sequence[RetrievedPassage], model: ExtractiveModel) -> Extraction:
        drafted = draft(self.question.text.raw, extractable(retrieved), self.first.term_idf, model=model)
        similarities = None
        if self.compare is not None and drafted.evidence >= model.abstain and self._seconds_left() > 0:
            try:
                similarities = await self.compare(drafted.shortlisted_texts())
            except (EmbedderUnavailable, Overloaded, InvalidInput):
                similarities = None  # the order by words stands
        return finish(drafted, similarities, model=model)

    async def _emit_extraction(self, extraction: Extraction) -> None:
        shown = 0
        for index, citation in enumerate(extraction.citations):
            await self.emit(TokenEmitted(extraction.text[shown : citation.answer_end]))
            await self.emit(CitationMade(index, citation))
            shown = citation.answer_end

    async def _abstain(
        self,
        used: Usage,
        text: str,
        *,
        source: AnswerSource | None = None,
        reason: StopReason = StopReason.NO_EVIDENCE,
        notices: tuple[str, ...] = (),
        escalate: bool | None = None,
    ) -> RouteResult:
        """Say that there is no answer; or, where that is allowed, say nothing and hand over."""
        result = RouteResult(
            text="",
            source=source or (AnswerSource.GENERATED if used.llm_calls else AnswerSource.EXTRACTIVE),
            outcome=Outcome.UNANSWERABLE,
            stop_reason=reason,
            notices=notices,
            usage=used,
        )
        if self.may_escalate if escalate is None else escalate:
            return replace(result, escalate=INSUFFICIENT)
        await self.emit(TokenEmitted(text))
        return replace(result, text=text)
