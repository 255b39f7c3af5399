"""The work of the graph's nodes: each takes the run's state and gives the next.

A node does the I/O that its step needs and leaves every decision to pure functions: guards, judges' rules, `Ending`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from agentic import embedding
from agentic.actions import Ask, Explore, Finish, Malformed, Plan, Proposal, searches_of, steps_of
from agentic.events import found_event, plan_event, query_events, screened_event, sufficiency_event
from agentic.exploring import second_look
from agentic.guards import steps
from agentic.guards.chain import GUARDS, may_call, rule
from agentic.guards.no_progress import gained
from agentic.guards.unknown_references import known_text, missing, spellings, unexplained
from agentic.guards.verdict import Allow, Refuse, Stop
from agentic.library import execute
from agentic.state import UNREADABLE, Ending, Evidence, Refusal, RunState
from agentic.structured import UnreadableOutput
from standard.domain.answer import StopReason, Usage
from standard.domain.errors import LlmUnavailable, Unavailable
from standard.domain.event import ClarificationAsked, ContextCompressed, Degraded, GuardTripped
from standard.tasks import first_error

if TYPE_CHECKING:
    from agentic.context import RunContext


async def judge(state: RunState, context: RunContext) -> RunState:
    """Judge the evidence; count a step without gain."""
    pattern = context.pattern_of(state)
    before = state.last_judgement
    judged_until = before.step if before is not None else 0
    fresh = [query for query in state.queries if query.step > judged_until]
    if pattern.needs_llm and pattern.judges_with_llm:
        if state.steps_left == 0:
            # Nothing could follow from a judgement: the answer itself shows what the evidence holds.
            return _count_gain(state, sum(query.new for query in fresh), None)
        verdict = may_call(state)
        if isinstance(verdict, Stop):
            return await _stop(state, context, "judge", verdict)
    try:
        async with _search_time(state):
            judged = await pattern.judge.judge(state)
    except TimeoutError:
        return await _out_of_time(state, context, "judge")
    except (LlmUnavailable, UnreadableOutput) as error:
        if isinstance(error, UnreadableOutput):
            state = state.spend(error.usage)
        if context.stamp(state).remaining_seconds <= state.limits.reserve_seconds:
            return await _out_of_time(context.stamp(state), context, "judge")
        return await judge(await _give_up_on_llm(state, context, error), context)
    state = state.spend(judged.usage)
    new_relevant: int | None = None
    if judged.relevant is not None:
        held = tuple(
            replace(item, relevant=item.ref in judged.relevant) if item.full and not item.dropped else item
            for item in state.evidence.held
        )
        new_relevant = sum(item.ref in judged.relevant for item in held if item.step > judged_until)
        state = replace(state, evidence=Evidence(held))
    state = replace(
        state,
        judgements=(*state.judgements, judged.judgement),
        branch_results=state.branch_results + judged.results,
    )
    await context.tell(state, sufficiency_event(judged.judgement, judged.usage.input_tokens))
    return _count_gain(state, sum(query.new for query in fresh), new_relevant)


async def compress(state: RunState, context: RunContext) -> RunState:
    """Put a summary in the place of raw passages."""
    if context.compress is None or isinstance(may_call(state), Stop):
        return state
    try:
        async with _search_time(state):
            done = await context.compress(state)
    except (TimeoutError, LlmUnavailable, UnreadableOutput) as error:
        # Compression saves tokens; a run goes on without it, and does not try again at once.
        usage = error.usage if isinstance(error, UnreadableOutput) else Usage()
        return replace(state.spend(usage), compressed_at=state.steps)
    state = replace(done.state.spend(done.usage), compressed_at=state.steps)
    if done.passage_ids:
        told = ContextCompressed(
            state.steps, done.tokens_before, done.tokens_after, done.passage_ids, done.usage.input_tokens
        )
        await context.tell(state, told)
    return state


async def propose(state: RunState, context: RunContext) -> RunState:
    """Let the controller propose, if the budgets allow another call."""
    if state.reviewed is not None:
        return replace(state, proposal=None).end(state.reviewed)
    pattern = context.pattern_of(state)
    last = state.last_judgement
    if state.steps_left == 0 and not (last is not None and last.step == state.steps and last.sufficient):
        verdict = Stop(StopReason.STEP_BUDGET, f"all {state.limits.max_steps} steps are used")
        return await _stop(state, context, "propose", verdict, guard_name=steps.NAME)
    if pattern.needs_llm:
        verdict_now = may_call(state)
        if isinstance(verdict_now, Stop):
            return await _stop(state, context, "propose", verdict_now)
    try:
        async with _search_time(state):
            proposal = await pattern.controller.propose(state)
    except TimeoutError:
        return await _out_of_time(state, context, "propose")
    except LlmUnavailable as error:
        now = context.stamp(state)
        if now.remaining_seconds <= state.limits.reserve_seconds:
            return await _out_of_time(now, context, "propose")
        return await propose(await _give_up_on_llm(state, context, error), context)
    state = replace(state.spend(proposal.usage), proposal=proposal, evidence=state.evidence.noted(proposal.notes))
    if isinstance(proposal.action, Malformed) and _malformed_in_row(state) >= 1:
        # One repair attempt was made; from here the rules carry the run on.
        problem = UnreadableOutput(proposal.action.problem)
        return await propose(await _give_up_on_llm(replace(state, proposal=None), context, problem), context)
    return state


async def guard(state: RunState, context: RunContext) -> RunState:
    """Ask the guards; a refused proposal goes back, a finish or a stop ends the search."""
    if state.proposal is None:  # a hole in a controller must not end a run without an answer
        return state.end(Ending(StopReason.NO_PROGRESS, detail="nothing was proposed"))
    try:
        async with _search_time(state):
            proposal = await _look_up(state, state.proposal, context)
    except TimeoutError:
        return await _out_of_time(state, context, state.proposal.action.kind)
    except Unavailable as error:
        return await _dependency_away(state, context, error)
    ruling = rule(state, proposal, GUARDS)
    for trip in ruling.trips:
        stops = isinstance(trip.verdict, Stop)
        # What was narrowed and goes on tells its prompt where it goes on.
        decides = trip.verdict is ruling.verdict
        asked, query = (proposal.usage.input_tokens, _first_query(proposal)) if decides else (0, "")
        step, kind = state.steps + 1, proposal.action.kind
        await context.tell(state, GuardTripped(step, trip.guard, kind, trip.reason, stops, asked, query))
    match ruling.verdict:
        case Stop(reason=reason, detail=detail):
            return replace(state, proposal=None).end(Ending(reason, _belief(state), detail))
        case Refuse(reason=reason):
            return _refuse(state, proposal, ruling.trips[-1].guard, reason)
        case Allow():
            pass
    kept = searches_of(ruling.proposal.action)
    dropped = tuple(search.query for search in searches_of(proposal.action) if search not in kept)
    state = replace(state, dropped_queries=state.dropped_queries + dropped)
    action = ruling.proposal.action
    if isinstance(action, Finish):
        shown = state.evidence.shown_to_writer(action.refs)
        return replace(state, proposal=None, evidence=shown).end(_ending_of(action))
    if isinstance(action, Ask):
        await context.tell(state, ClarificationAsked(action.question, action.options))
        if not context.can_ask:
            return state.end(Ending(StopReason.NEEDS_INPUT, detail=action.question))
    return replace(state, proposal=ruling.proposal)


async def act(state: RunState, context: RunContext) -> RunState:
    """Carry the allowed action out."""
    proposal = state.proposal
    if proposal is None:
        return state.end(Ending(StopReason.NO_PROGRESS, detail="nothing was proposed"))
    if isinstance(proposal.action, Plan):
        await context.tell(state, plan_event(proposal.action, proposal.usage.input_tokens))
        return replace(
            state,
            plan=proposal.action.branches,
            plan_by_rules=proposal.action.by_rules,
            plans_made=state.plans_made + 1,
            proposal=None,
            refused_in_row=0,
        )
    for body in query_events(state, proposal.action, proposal.usage.input_tokens):
        await context.tell(state, body)
    snippets = context.pattern_of(state).snippets
    try:
        async with _search_time(state):
            outcome = await execute(state, proposal, context.library, context.scope, snippets=snippets)
    except TimeoutError:
        return await _out_of_time(state, context, proposal.action.kind)
    except ExceptionGroup as group:
        matched, rest = group.split(Unavailable)
        if matched is None or rest is not None:
            raise
        return await _dependency_away(state, context, first_error(matched))
    except Unavailable as error:
        return await _dependency_away(state, context, error)
    after = replace(
        state,
        evidence=outcome.evidence,
        steps=state.steps + max(1, steps_of(proposal.action)),
        usage=state.usage + outcome.usage,
        queries=state.queries + outcome.issued,
        refused_in_row=0,
        proposal=None,
    )
    screened = screened_event(outcome)
    if screened is not None:
        await context.tell(after, screened)
    for issued, admission in zip(outcome.issued, outcome.admissions, strict=True):
        await context.tell(after, found_event(issued, admission))
    return after


def _search_time(state: RunState) -> asyncio.Timeout:
    """No work of control outlasts the time for searching, whatever it waits for."""
    return asyncio.timeout(max(0.001, state.remaining_seconds - state.limits.reserve_seconds))


async def _look_up(state: RunState, proposal: Proposal, context: RunContext) -> Proposal:
    """Embed the proposal's queries and look unexplained references up, so that the guards need no I/O."""
    if isinstance(proposal.action, Explore):
        look = second_look(state, proposal.action.refs)
        return replace(proposal, vectors=embedding.as_bytes(await context.embed([look])))
    searches = searches_of(proposal.action)
    queries = [search.query for search in searches if search.query.strip()]
    if not queries or len(queries) != len(searches) or any(len(query) > embedding.MAX_TEXT for query in queries):
        return proposal  # malformed: refused without being looked at
    vectors = embedding.as_bytes(await context.embed(queries))
    unknown: tuple[str, ...] = ()
    if state.settings.guards.check_references:
        known = known_text(state)
        names = tuple(dict.fromkeys(name for query in queries for name in unexplained(query, known)))
        if names:
            asked = [spelling for name in names for spelling in spellings(name)]
            unknown = missing(names, await context.library.mentioned(context.scope, asked))
    return replace(proposal, vectors=vectors, unknown=unknown)


def _refuse(state: RunState, proposal: Proposal, guard_name: str, reason: str) -> RunState:
    refusal = Refusal(
        step=state.steps + 1,
        guard=guard_name,
        action=proposal.action.kind,
        reason=reason,
        query=_first_query(proposal),
    )
    return replace(state, refusals=(*state.refusals, refusal), refused_in_row=state.refused_in_row + 1, proposal=None)


def _first_query(proposal: Proposal) -> str:
    """What a proposal would look for first, cut."""
    searches = searches_of(proposal.action)
    return searches[0].query[: embedding.MAX_TEXT] if searches else ""


def _malformed_in_row(state: RunState) -> int:
    return sum(refusal.action == "malformed" for refusal in state.recent_refusals)


def judged_until(state: RunState) -> int:
    """The last step whose evidence was judged, 0 for none."""
    last = state.last_judgement
    return last.step if last is not None else 0


def _count_gain(state: RunState, new_passages: int, new_relevant: int | None) -> RunState:
    before = state.judgements[-2] if len(state.judgements) > 1 else None
    if gained(new_passages, before, state.last_judgement, new_relevant):
        return replace(state, stale_steps=0)
    return replace(state, stale_steps=state.stale_steps + 1)


def _belief(state: RunState) -> Literal["sufficient", "partial"]:
    last = state.last_judgement
    return "sufficient" if last is not None and last.sufficient and last.by == "llm" else "partial"


def _ending_of(finish: Finish) -> Ending:
    reason = {
        "sufficient": StopReason.SUFFICIENT,
        "partial": StopReason.NO_PROGRESS,
        "unanswerable": StopReason.NO_EVIDENCE,
    }[finish.belief]
    return Ending(reason, finish.belief, finish.reason)


async def _stop(state: RunState, context: RunContext, action: str, verdict: Stop, *, guard_name: str = "") -> RunState:
    """End the search on a cap that was met outside of the guard node, and say so."""
    name = guard_name or {
        StopReason.TIME_BUDGET: "wall_clock",
        StopReason.TOKEN_BUDGET: "tokens",
        StopReason.COST_BUDGET: "money",
    }.get(verdict.reason, "steps")
    await context.tell(state, GuardTripped(state.steps + 1, name, action, verdict.detail, stops=True))
    return replace(state, proposal=None).end(Ending(verdict.reason, _belief(state), verdict.detail))


async def _out_of_time(state: RunState, context: RunContext, action: str) -> RunState:
    verdict = Stop(StopReason.TIME_BUDGET, "the time for searching is used")
    return await _stop(context.stamp(state), context, action, verdict)


async def _give_up_on_llm(state: RunState, context: RunContext, error: LlmUnavailable | UnreadableOutput) -> RunState:
    """Go on by rules: the model failed, or its output could not be read twice in a row."""
    if isinstance(error, LlmUnavailable):
        kind, notice = error.kind, "the language model is away; the search goes on by rules"
    else:
        kind, notice = UNREADABLE, "the language model's decisions could not be read; the search goes on by rules"
    await context.tell(state, Degraded("llm", notice))
    return replace(context.stamp(state), llm_failed=kind, notices=(*state.notices, notice), refused_in_row=0)


async def _dependency_away(state: RunState, context: RunContext, error: Unavailable) -> RunState:
    """Answer from what is held; without anything held there is nothing to answer with, and the error stands."""
    if not state.evidence.held:
        raise error
    notice = f"the {error.dependency} went away during the search; the answer rests on what was found before"
    await context.tell(state, Degraded(error.dependency, notice))
    ended = state.end(Ending(StopReason.NO_PROGRESS, _belief(state), notice))
    return replace(ended, proposal=None, notices=(*state.notices, notice))
