"""The loop as a graph: propose -> guard -> act -> judge -> compress -> … -> answer.

The patterns (retrieve-then-decide, plan, tools, offline) differ by controller; the graph is one. Every node takes the
run's state and gives the next; what a node needs besides (library, model, the caller's stream) comes with the run's
context and is never part of a checkpoint.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from agentic import embedding
from agentic.actions import Ask, Explore, Finish, Malformed, Plan, Proposal, Search, searches_of, steps_of
from agentic.events import found_event, plan_event, query_events, sufficiency_event
from agentic.exploring import second_look
from agentic.guards import steps
from agentic.guards.chain import GUARDS, may_call, rule
from agentic.guards.no_progress import gained
from agentic.guards.unknown_references import known_text, unexplained
from agentic.guards.verdict import Allow, Refuse, Stop
from agentic.library import execute
from agentic.settings import MAX_STEPS
from agentic.state import UNREADABLE, Ending, Evidence, Refusal, Reply, RunState
from agentic.structured import UnreadableOutput
from standard.domain.answer import StopReason, Usage
from standard.domain.errors import LlmUnavailable, Unavailable
from standard.domain.event import ClarificationAsked, ContextCompressed, Degraded, GuardTripped
from standard.domain.outcome import RouteResult
from standard.domain.text import UntrustedText

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from agentic.answer import MoreNeeded
    from agentic.compression import Compress
    from agentic.controllers.protocol import Pattern
    from agentic.library import Embed, Library
    from standard.domain.event import Emit
    from standard.domain.passage import Scope


class Channels(TypedDict, total=False):
    """The graph's channels: the run without its passages, the passages, and the result once there is one.

    Passages have a channel of their own since they are large and change only when something was found.
    """

    run: RunState
    evidence: Evidence
    result: RouteResult


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the nodes of one attempt of a run work with; not part of any checkpoint.

    `clock` counts seconds (the event loop's time); `started` is its value when the attempt began, `elapsed_before` what
    earlier attempts took, `deadline` the clock's value at which the answer must be out. `can_ask` tells whether the run
    can wait for the user (it has a checkpointer).
    """

    pattern: Pattern
    offline: Pattern
    library: Library
    embed: Embed
    scope: Scope
    emit: Emit
    write_answer: Callable[[RunState], Awaitable[RouteResult | MoreNeeded]]
    compress: Compress | None
    clock: Callable[[], float]
    started: float
    elapsed_before: float = 0.0
    deadline: float | None = None
    can_ask: bool = False

    def stamp(self, state: RunState) -> RunState:
        """The state with the time it is."""
        now = self.clock()
        elapsed = self.elapsed_before + now - self.started
        remaining = state.limits.max_seconds - elapsed
        if self.deadline is not None:
            remaining = min(remaining, self.deadline - now)
        return replace(state, elapsed_seconds=elapsed, remaining_seconds=remaining)

    def pattern_of(self, state: RunState) -> Pattern:
        """The run's pattern; the offline one once the model was given up on."""
        return self.offline if state.llm_failed else self.pattern


def recursion_limit() -> int:
    """More node visits than any run can make: a net under the guards, which end every run long before."""
    return (MAX_STEPS + 8) * 16


def build_graph(checkpointer: BaseCheckpointSaver[str] | None = None) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The loop, compiled. With a checkpointer every node's result is kept, so that a run can go on elsewhere."""
    graph: StateGraph[Channels, RunContext] = StateGraph(Channels, context_schema=RunContext)
    for name, work in (("judge", judge), ("compress", compress), ("propose", propose), ("guard", guard), ("act", act)):
        graph.add_node(name, _node(work))
    graph.add_node("clarify", _clarify)
    graph.add_node("answer", _answer)
    graph.add_edge(START, "judge")
    graph.add_conditional_edges("judge", _after_judge, ["compress", "propose", "answer"])
    graph.add_edge("compress", "propose")
    graph.add_conditional_edges("propose", _after_propose, ["guard", "answer"])
    graph.add_conditional_edges("guard", _after_guard, ["act", "propose", "clarify", "answer"])
    graph.add_conditional_edges("act", _after_act, ["judge", "propose", "answer"])
    graph.add_edge("clarify", "judge")
    graph.add_conditional_edges("answer", _after_answer, ["guard", END])
    return graph.compile(checkpointer=checkpointer, name="pointsman")


def render_mermaid() -> str:
    """The loop drawn as a Mermaid flow chart, from the graph itself."""
    return build_graph().get_graph().draw_mermaid()


# ---------------------------------------------------------------------------------------------------------------- nodes


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
    await context.emit(sufficiency_event(judged.judgement))
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
        await context.emit(ContextCompressed(state.steps, done.tokens_before, done.tokens_after, done.passage_ids))
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
    state = replace(state.spend(proposal.usage), proposal=proposal)
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
        await context.emit(GuardTripped(state.steps + 1, trip.guard, proposal.action.kind, trip.reason, stops))
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
        return replace(state, proposal=None).end(_ending_of(action))
    if isinstance(action, Ask):
        await context.emit(ClarificationAsked(action.question, action.options))
        if not context.can_ask:
            return state.end(Ending(StopReason.NEEDS_INPUT, detail=action.question))
    return replace(state, proposal=ruling.proposal)


async def act(state: RunState, context: RunContext) -> RunState:
    """Carry the allowed action out."""
    proposal = state.proposal
    if proposal is None:
        return state.end(Ending(StopReason.NO_PROGRESS, detail="nothing was proposed"))
    if isinstance(proposal.action, Plan):
        await context.emit(plan_event(proposal.action))
        return replace(
            state,
            plan=proposal.action.branches,
            plan_by_rules=proposal.action.by_rules,
            plans_made=state.plans_made + 1,
            proposal=None,
            refused_in_row=0,
        )
    for body in query_events(state, proposal.action):
        await context.emit(body)
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
        return await _dependency_away(state, context, _first(matched))
    except Unavailable as error:
        return await _dependency_away(state, context, error)
    for issued, admission in zip(outcome.issued, outcome.admissions, strict=True):
        await context.emit(found_event(issued, admission))
    return replace(
        state,
        evidence=outcome.evidence,
        steps=state.steps + max(1, steps_of(proposal.action)),
        usage=state.usage + outcome.usage,
        queries=state.queries + outcome.issued,
        refused_in_row=0,
        proposal=None,
    )


async def _clarify(state: Channels, *, runtime: Runtime[RunContext]) -> Channels:
    """Wait for the user; the run goes on with the answer. Runs again from its start when the answer is there."""
    run = _join(state)
    ask = run.proposal.action if run.proposal is not None else None
    if not isinstance(ask, Ask):
        return _split(run, state)
    answer: object = interrupt({"question": ask.question, "options": list(ask.options)})
    reply = Reply(ask.question, UntrustedText(str(answer)))
    # What was judged beside the point may be to the point now.
    held = tuple(replace(item, relevant=None) for item in run.evidence.held)
    done = replace(
        run,
        evidence=Evidence(held),
        replies=(*run.replies, reply),
        proposal=None,
        refused_in_row=0,
        stale_steps=0,
    )
    return _split(runtime.context.stamp(done), state)


async def _answer(state: Channels, *, runtime: Runtime[RunContext]) -> Channels:
    """Write the answer from what is known."""
    run = runtime.context.stamp(_join(state))
    written = await runtime.context.write_answer(run)
    if isinstance(written, RouteResult):
        return {"result": written}
    search = Search(written.query, reason="the draft lacks this")
    again = replace(run.spend(written.usage), proposal=Proposal(search), reviewed=run.ending, ending=None)
    return _split(again, state)


# ---------------------------------------------------------------------------------------------------------------- edges
# Coroutines, though they wait for nothing: LangGraph runs a plain function in a thread of an executor.


async def _after_answer(channels: Channels) -> str:
    return END if "result" in channels else "guard"


async def _after_judge(channels: Channels) -> str:
    state = _join(channels)
    if state.ending is not None:
        return "answer"
    return "compress" if compression_due(state) else "propose"


async def _after_propose(channels: Channels) -> str:
    return "answer" if channels["run"].ending is not None else "guard"


async def _after_guard(channels: Channels) -> str:
    state = channels["run"]
    if state.ending is not None:
        return "answer"
    if state.proposal is None:
        return "propose"
    return "clarify" if isinstance(state.proposal.action, Ask) else "act"


async def _after_act(channels: Channels) -> str:
    state = channels["run"]
    if state.ending is not None:
        return "answer"
    if state.reviewed is not None:
        return "propose"  # the one more search of a review: the answer is written anew from what it brought
    return "judge" if state.queries and state.queries[-1].step > _judged_until(state) else "propose"


def compression_due(state: RunState) -> bool:
    """Every few steps, once enough full passages are held and while another step may follow."""
    settings = state.settings.compression
    return (
        settings.enabled
        and not state.llm_failed
        and state.steps_left > 0
        and state.steps - state.compressed_at >= settings.every_steps
        and len(state.evidence.in_context) >= settings.min_passages
    )


# --------------------------------------------------------------------------------------------------------------
# plumbing


class _Node(Protocol):
    async def __call__(self, state: Channels, *, runtime: Runtime[RunContext]) -> Channels: ...


def _node(work: Callable[[RunState, RunContext], Awaitable[RunState]]) -> _Node:
    async def run(state: Channels, *, runtime: Runtime[RunContext]) -> Channels:
        stamped = runtime.context.stamp(_join(state))
        return _split(await work(stamped, runtime.context), state)

    return run


def _join(channels: Channels) -> RunState:
    return replace(channels["run"], evidence=channels["evidence"])


def _split(state: RunState, before: Channels) -> Channels:
    """The channels that changed: the evidence is left out where it is the same."""
    after: Channels = {"run": replace(state, evidence=Evidence())}
    if state.evidence != before["evidence"]:
        after["evidence"] = state.evidence
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
            mentioned = await context.library.mentioned(context.scope, names)
            unknown = tuple(name for name in names if name not in mentioned)
    return replace(proposal, vectors=vectors, unknown=unknown)


def _refuse(state: RunState, proposal: Proposal, guard_name: str, reason: str) -> RunState:
    searches = searches_of(proposal.action)
    refusal = Refusal(
        step=state.steps + 1,
        guard=guard_name,
        action=proposal.action.kind,
        reason=reason,
        query=searches[0].query[: embedding.MAX_TEXT] if searches else "",
    )
    return replace(state, refusals=(*state.refusals, refusal), refused_in_row=state.refused_in_row + 1, proposal=None)


def _malformed_in_row(state: RunState) -> int:
    return sum(refusal.action == "malformed" for refusal in state.recent_refusals)


def _judged_until(state: RunState) -> int:
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
    await context.emit(GuardTripped(state.steps + 1, name, action, verdict.detail, stops=True))
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
    await context.emit(Degraded("llm", notice))
    return replace(context.stamp(state), llm_failed=kind, notices=(*state.notices, notice), refused_in_row=0)


async def _dependency_away(state: RunState, context: RunContext, error: Unavailable) -> RunState:
    """Answer from what is held; without anything held there is nothing to answer with, and the error stands."""
    if not state.evidence.held:
        raise error
    notice = f"the {error.dependency} went away during the search; the answer rests on what was found before"
    await context.emit(Degraded(error.dependency, notice))
    ended = state.end(Ending(StopReason.NO_PROGRESS, _belief(state), notice))
    return replace(ended, proposal=None, notices=(*state.notices, notice))


def _first(group: ExceptionGroup[Unavailable]) -> Unavailable:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, Unavailable):
        raise TypeError(f"expected Unavailable, got {type(error).__name__}")
    return error
