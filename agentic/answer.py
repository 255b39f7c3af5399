"""The end of a run: from what is known to the best answer there is. Never empty, never an error."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from agentic.critique import Withheld, emit_whole, reviewed
from agentic.guards.chain import may_call
from agentic.guards.verdict import ALLOW, Stop, Verdict
from agentic.state import UNREADABLE, Fact
from agentic.structured import UnreadableOutput
from standard.domain.answer import AnswerSource, Outcome, StopReason, Usage
from standard.domain.errors import LlmUnavailable
from standard.domain.event import Degraded, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.domain.question import PLAIN, AnswerStyle, Turn
from standard.domain.text import UntrustedText
from standard.outlet import Blocked
from standard.pipeline import LLM_AWAY
from standard.prompts import NO_ANSWER_FOUND, NOTHING_FOUND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentic.critique import Critic
    from agentic.state import BranchResult, Held, RunState
    from standard.domain.event import Emit
    from standard.sandbox.canary import Secret

NOT_CHECKED = "The answer could not be checked against its sources."

MIN_ANSWER_TOKENS = 64
"""Fewer output tokens than this are not worth a call."""


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """What the writer of an answer gets.

    `held` are the passages to answer from, most useful first; `recorded` those whose text compression took out of the
    context and that facts rest on. `facts` are what a judge, a plan or a summary holds for
    known, with source numbers (model output: as untrusted as the passages); `gaps` what is known to be missing and
    `contradictions` where sources disagree. `term_idf` weighs the question's lexemes (it may be empty).
    `max_total_tokens` bounds prompt and answer together. `style` is the collection's.
    """

    question: UntrustedText
    history: tuple[Turn, ...]
    held: tuple[Held, ...]
    recorded: tuple[Held, ...]
    facts: tuple[Fact, ...]
    gaps: tuple[str, ...]
    contradictions: tuple[Fact, ...]
    max_total_tokens: int
    timeout_seconds: float
    term_idf: Mapping[str, float] = field(default_factory=dict)
    style: AnswerStyle = PLAIN


class AnswerWriter(Protocol):
    """Writes an answer through the citation machinery that the standard route uses, emitting its text as it comes."""

    @property
    def secret(self) -> Secret | None:
        """What of the answering prompt must not get out; None without a model."""
        ...

    async def generate(self, request: AnswerRequest, emit: Emit) -> RouteResult:
        """Let the LLM answer. Raises LlmUnavailable only before any text was emitted."""
        ...

    async def extract(self, request: AnswerRequest, emit: Emit) -> RouteResult:
        """Answer with sentences of the passages. Does not fail."""
        ...


@dataclass(frozen=True, slots=True)
class MoreNeeded:
    """Instead of an answer: its draft was of no use without one more search. `usage` is what draft and review cost.

    `relevant` and `beside` number the sources that the review found to the point and beside it.
    """

    query: str
    usage: Usage
    relevant: frozenset[int] = frozenset()
    beside: frozenset[int] = frozenset()


async def write_answer(
    state: RunState,
    writer: AnswerWriter,
    emit: Emit,
    *,
    llm_configured: bool,
    critic: Critic | None = None,
    style: AnswerStyle = PLAIN,
    said: UntrustedText | None = None,
) -> RouteResult | MoreNeeded:
    """Answer from what the run holds and say how it ended; with a critic, perhaps ask for one more search first.

    `said` are the user's own words, where the run worked with a follow-up as it stands alone.
    """
    ending = state.ending
    reason = StopReason.NO_PROGRESS if ending is None else ending.reason
    if reason is StopReason.NEEDS_INPUT and ending is not None:
        return await clarification_result(state, ending.detail, emit)
    if not state.evidence.held:
        unmet = reason in {StopReason.SUFFICIENT, StopReason.NO_PROGRESS}
        return await _unanswerable(state, StopReason.NO_EVIDENCE if unmet else reason, emit)
    request = replace(answer_request(state), style=style, question=said or state.question)
    if ending is not None and ending.belief == "unanswerable":
        return await _unanswerable(state, StopReason.NO_EVIDENCE, emit)
    result: RouteResult | None = None
    notices = state.notices
    model_away = bool(state.llm_failed) and state.llm_failed != UNREADABLE
    if llm_configured and not model_away and request.max_total_tokens > MIN_ANSWER_TOKENS:
        try:
            drafted = await _generate(state, writer, request, emit, critic)
        except LlmUnavailable:
            model_away = True
            notice = LLM_AWAY
            notices = (*notices, notice)
            await emit(Degraded("llm", notice))
        else:
            if isinstance(drafted, MoreNeeded):
                return drafted
            result, whole = drafted
            if whole and ending is not None and newer_than_judged(state):
                # No judge saw what was found last; the review did, and misses nothing.
                settled = StopReason.SUFFICIENT if reason is StopReason.NO_PROGRESS else reason
                state, reason = replace(state, ending=replace(ending, belief="sufficient")), settled
    if result is None:
        result = await writer.extract(request, emit)
    if model_away:
        reason = StopReason.LLM_UNAVAILABLE
    return _settle(state, result, reason, notices)


async def _generate(
    state: RunState, writer: AnswerWriter, request: AnswerRequest, emit: Emit, critic: Critic | None
) -> tuple[RouteResult, bool] | MoreNeeded:
    """Let the model write; with a critic, hold the draft back until it was reviewed: did that miss nothing?"""
    if critic is None:
        return await writer.generate(request, emit), False
    whole = False
    clock = asyncio.get_running_loop().time
    began = clock()
    draft = await writer.generate(request, Withheld(emit))
    took = clock() - began
    after = replace(
        state.spend(draft.usage),
        elapsed_seconds=state.elapsed_seconds + took,
        remaining_seconds=state.remaining_seconds - took,
    )
    if draft.text and draft.outcome is not Outcome.UNANSWERABLE and not isinstance(may_review(after), Stop):
        try:
            # A draft that was not checked in time is worth more than a call that ends with nothing.
            async with asyncio.timeout(after.remaining_seconds):
                review = await critic.review(after, request, draft)
        except (LlmUnavailable, UnreadableOutput, TimeoutError) as error:
            spent = error.usage if isinstance(error, UnreadableOutput) else Usage()
            draft = replace(draft, usage=draft.usage + spent, notices=(*draft.notices, NOT_CHECKED))
        else:
            usage = draft.usage + review.usage
            another = review.query and state.reviewed is None and state.steps_left
            if another and not isinstance(may_call(after.spend(review.usage)), Stop):
                return MoreNeeded(review.query, usage, review.relevant, review.beside)
            draft = replace(reviewed(draft, review), usage=usage)
            whole = review.useful
    try:
        await emit_whole(draft, emit)
    except Blocked:  # what draft and review cost stands
        blocked = StopReason.OUTPUT_BLOCKED
        return replace(draft, text="", citations=(), outcome=Outcome.BLOCKED, stop_reason=blocked), False
    return draft, whole


def may_review(state: RunState) -> Verdict:
    """May a draft still be reviewed? Time and tokens must be left; the answer's reserve may be used for it."""
    if state.remaining_seconds <= 0 or tokens_for_answer(state) <= MIN_ANSWER_TOKENS:
        return Stop(StopReason.TOKEN_BUDGET, "no room is left to check the answer")
    return ALLOW


async def clarification_result(state: RunState, question: str, emit: Emit) -> RouteResult:
    """The run waits for the user: the question is the answer's text as well, for clients that read nothing else."""
    await emit(TokenEmitted(question))
    return RouteResult(
        text=question,
        source=AnswerSource.GENERATED,
        outcome=Outcome.NEEDS_CLARIFICATION,
        stop_reason=StopReason.NEEDS_INPUT,
        clarification=question,
        notices=state.notices,
        steps=state.steps,
        usage=state.usage,
    )


def answer_request(state: RunState) -> AnswerRequest:
    """What of a run's state its answer is written from."""
    judgement = state.last_judgement
    summary = state.summary
    facts = list(summary.facts) if summary is not None else []
    contradictions = list(summary.contradictions) if summary is not None else []
    gaps = list(open_branches(state))
    if judgement is not None and judgement.by == "llm":
        facts += judgement.known if not state.branch_results else ()  # what is known of a plan are its results
        contradictions += judgement.contradictions
        gaps += judgement.missing if not gaps and not newer_than_judged(state) else ()
    facts += [
        Fact(f"{result.question} -> {result.answer}", result.refs)
        for result in state.branch_results
        if not result.failed and not _told(result, facts)
    ]
    recorded = _recorded(state, facts)
    return AnswerRequest(
        question=state.question,
        history=(*state.history, *_clarifications(state)),
        held=_most_useful_first(state, needed=not recorded),
        recorded=recorded,
        facts=tuple(dict.fromkeys(facts)),
        gaps=tuple(dict.fromkeys(gaps)),
        contradictions=tuple(dict.fromkeys(contradictions)),
        max_total_tokens=tokens_for_answer(state),
        timeout_seconds=max(0.0, min(state.settings.answer_seconds, state.remaining_seconds)),
        term_idf=dict(state.term_idf),
    )


def newer_than_judged(state: RunState) -> bool:
    """Was anything found since the evidence was last judged? What was missing then need not be missing any more."""
    judged = state.last_judgement.step if state.last_judgement is not None else 0
    return any(query.step > judged and query.new for query in state.queries)


def _told(result: BranchResult, facts: list[Fact]) -> bool:
    """Does a fact say the answer already, from the same source? A record is written from the answers before it."""
    answer = result.answer.casefold()
    return any(answer in fact.text.casefold() and set(fact.refs) & set(result.refs) for fact in facts)


def _clarifications(state: RunState) -> tuple[Turn, ...]:
    """What the user was asked and answered during the run, as turns of the conversation."""
    turns: list[Turn] = []
    for reply in state.replies:
        turns += [Turn("assistant", UntrustedText(reply.question)), Turn("user", reply.answer)]
    return tuple(turns)


def tokens_for_answer(state: RunState) -> int:
    """Billed tokens that the final answer may use: what is left of the cap, its reserve included."""
    return max(0, state.limits.max_tokens - state.usage.billed_tokens)


def _recorded(state: RunState, facts: list[Fact]) -> tuple[Held, ...]:
    """Compressed passages that facts rest on."""
    refs = {ref for fact in facts for ref in fact.refs}
    return tuple(held for held in state.evidence.held if held.dropped and held.ref in refs)


def _most_useful_first(state: RunState, *, needed: bool) -> tuple[Held, ...]:
    """Passages of the context: relevant ones first, then those not judged, in order of acquisition.

    Where none is left and passages are `needed`, all there are: unread, irrelevant and compressed ones too. Where a
    record of what was of use stands in their place, they are not.
    """
    shown = [held for held in state.evidence.held if held.full and not held.dropped]
    if not shown and not needed:
        return ()

    def rank(held: Held) -> tuple[int, int]:
        return ({True: 0, None: 1, False: 2}[held.relevant], held.ref)

    ranked = sorted(shown or state.evidence.held, key=rank)
    useful = [held for held in ranked if held.relevant is not False]
    return tuple(useful or (ranked if needed else ()))


def open_branches(state: RunState) -> tuple[str, ...]:
    """The sub-questions of the plan that have no answer, for the reader."""
    if state.plan_by_rules:
        return ()
    results = {result.branch: result for result in state.branch_results}
    return tuple(
        results[branch.id].question if branch.id in results else _without_places(branch.question)
        for branch in state.plan
        if branch.id not in results or results[branch.id].failed
    )


def _without_places(question: str) -> str:
    return " ".join(re.sub(r"\{b\d+\}", "…", question).split())


async def _unanswerable(state: RunState, reason: StopReason, emit: Emit) -> RouteResult:
    """Say that there is no answer, and what exactly was missing where that is known."""
    judgement = state.last_judgement
    missing = judgement.missing[:3] if judgement is not None and judgement.by == "llm" else ()
    text = NO_ANSWER_FOUND if state.evidence.held else NOTHING_FOUND
    text += f" Missing: {'; '.join(missing)}." if missing else ""
    await emit(TokenEmitted(text))
    return RouteResult(
        text=text,
        source=AnswerSource.EXTRACTIVE,
        outcome=Outcome.UNANSWERABLE,
        stop_reason=reason,
        notices=state.notices,
        steps=state.steps,
        usage=state.usage,
    )


def _settle(state: RunState, result: RouteResult, reason: StopReason, notices: tuple[str, ...]) -> RouteResult:
    """The writer's result with what the run knows: outcome, stop reason, steps, usage of all calls."""
    ending, judgement = state.ending, state.last_judgement
    outcome = result.outcome
    if result.stop_reason is StopReason.OUTPUT_BLOCKED:
        reason = StopReason.OUTPUT_BLOCKED
    elif outcome is Outcome.ANSWERED:
        caveats = []
        if ending is None or ending.belief != "sufficient":
            caveats.append("the search ended before everything asked for was found")
        if judgement is not None and judgement.contradictions:
            caveats.append("the sources contradict each other")
        caveats += [f"not found: {question}" for question in open_branches(state)]
        if caveats:
            outcome = Outcome.ANSWERED_WITH_CAVEAT
            notices = (*notices, *caveats)
    elif outcome is Outcome.UNANSWERABLE and reason in {StopReason.SUFFICIENT, StopReason.NO_PROGRESS}:
        reason = StopReason.NO_EVIDENCE
    return replace(
        result,
        outcome=outcome,
        stop_reason=reason,
        notices=tuple(dict.fromkeys((*notices, *result.notices))),
        steps=state.steps,
        usage=state.usage + result.usage,
    )
