"""The loop as a graph: propose -> guard -> act -> judge -> compress -> … -> answer.

The patterns (retrieve-then-decide, plan, tools, offline) differ by controller; the graph is one. What a node needs
besides the state (library, model, the caller's stream) comes with the run's context and is never part of a checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from agentic.actions import Ask, Proposal, Search, searches_of
from agentic.context import RunContext
from agentic.nodes import act, compress, guard, judge, judged_until, propose
from agentic.settings import MAX_STEPS
from agentic.state import Evidence, Reply, RunState
from standard import semconv
from standard.domain.outcome import RouteResult
from standard.domain.text import UntrustedText
from standard.spans import span

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

    from agentic.answer import MoreNeeded
    from agentic.state import Held
    from standard.spans import Span


class Channels(TypedDict, total=False):
    """The graph's channels: the run without its passages, the passages, and the result once there is one.

    Passages have a channel of their own since they are large and change only when something was found.
    """

    run: RunState
    evidence: Evidence
    result: RouteResult


def recursion_limit() -> int:
    """More node visits than any run can make: a net under the guards, which end every run long before."""
    return (MAX_STEPS + 8) * 16


def build_graph(checkpointer: BaseCheckpointSaver[str] | None = None) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The loop, compiled. With a checkpointer every node's result is kept, so that a run can go on elsewhere."""
    graph: StateGraph[Channels, RunContext] = StateGraph(Channels, context_schema=RunContext)
    graph.add_node("judge", _node(judge, _after_judge), destinations=("compress", "propose", "answer"))
    graph.add_node("compress", _node(compress, lambda _: "propose"), destinations=("propose",))
    graph.add_node("propose", _node(propose, _after_propose), destinations=("guard", "answer"))
    graph.add_node("guard", _node(guard, _after_guard), destinations=("act", "propose", "clarify", "answer"))
    graph.add_node("act", _node(act, _after_act), destinations=("judge", "propose", "answer"))
    graph.add_node("clarify", _clarify, destinations=("judge",))
    graph.add_node("answer", _answer, destinations=("guard", END))
    graph.add_edge(START, "judge")
    return graph.compile(checkpointer=checkpointer, name="pointsman")


def render_mermaid() -> str:
    """The loop drawn as a Mermaid flow chart, from the graph itself."""
    return build_graph().get_graph().draw_mermaid()


async def _clarify(state: Channels, *, runtime: Runtime[RunContext]) -> Command[str]:
    """Wait for the user; the run goes on with the answer. Runs again from its start when the answer is there."""
    run = _join(state)
    ask = run.proposal.action if run.proposal is not None else None
    if not isinstance(ask, Ask):
        return Command(update=_split(run, state), goto="judge")
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
    return Command(update=_split(runtime.context.stamp(done), state), goto="judge")


async def _answer(state: Channels, *, runtime: Runtime[RunContext]) -> Command[str]:
    """Write the answer from what is known."""
    run = runtime.context.stamp(_join(state))
    with span("agentic.answer") as opened:
        _tell_ending(opened, run)
        written = await runtime.context.write_answer(run)
    if isinstance(written, RouteResult):
        return Command(update={"result": written}, goto=END)
    search = Search(written.query, reason="the draft lacks this")
    held = tuple(_as_reviewed(item, written) for item in run.evidence.held)
    again = replace(
        run.spend(written.usage),
        evidence=Evidence(held),
        proposal=Proposal(search),
        reviewed=run.ending,
        ending=None,
    )
    return Command(update=_split(again, state), goto="guard")


def _as_reviewed(held: Held, written: MoreNeeded) -> Held:
    """A source with what the review of the draft said of it."""
    if held.ref in written.relevant:
        return replace(held, relevant=True)
    return replace(held, relevant=False) if held.ref in written.beside else held


# ---------------------------------------------------------------------------------------------------------------- edges
# Where each node leads. A node's command carries it, which spares the graph a second task for every edge.


def _after_judge(state: RunState) -> str:
    if state.ending is not None:
        return "answer"
    return "compress" if compression_due(state) else "propose"


def _after_propose(state: RunState) -> str:
    return "answer" if state.ending is not None else "guard"


def _after_guard(state: RunState) -> str:
    if state.ending is not None:
        return "answer"
    if state.proposal is None:
        return "propose"
    return "clarify" if isinstance(state.proposal.action, Ask) else "act"


def _after_act(state: RunState) -> str:
    if state.ending is not None:
        return "answer"
    if state.reviewed is not None:
        return "propose"  # the one more search of a review: the answer is written anew from what it brought
    return "judge" if state.queries and state.queries[-1].step > judged_until(state) else "propose"


def compression_due(state: RunState) -> bool:
    """Every few steps, once enough full passages are held and while another step may follow."""
    settings, last = state.settings.compression, state.last_judgement
    return (
        settings.enabled
        and not state.llm_failed
        # The model has just said that nothing is missing: the next call writes the answer.
        and not (last is not None and last.sufficient and last.by == "llm")
        and state.steps_left > 0
        and state.steps - state.compressed_at >= settings.every_steps
        and len(state.evidence.in_turns) >= settings.min_passages
    )


class _Node(Protocol):
    async def __call__(self, state: Channels, *, runtime: Runtime[RunContext]) -> Command[str]: ...


def _node(work: Callable[[RunState, RunContext], Awaitable[RunState]], edge: Callable[[RunState], str]) -> _Node:
    name = work.__name__
    step = f"agentic.{name}"

    async def run(state: Channels, *, runtime: Runtime[RunContext]) -> Command[str]:
        before = runtime.context.stamp(_join(state))
        proposed = before.proposal if name == "act" else None
        if proposed is None:
            opening = span(step)
        else:
            kind = proposed.action.kind
            opening = span(
                f"{semconv.EXECUTE_TOOL} {kind}",
                {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL: kind, semconv.TOOL_TYPE: "datastore"},
            )
        with opening as opened:
            after = await work(before, runtime.context)
            if opened.recording:
                _tell_step(opened, name, before, after)
        return Command(update=_split(after, state), goto=edge(after))

    return run


def _tell_step(opened: Span, name: str, before: RunState, after: RunState) -> None:
    """Say on a node's span what it came to; texts only where content is written."""
    opened.set("pointsman.step", after.steps)
    if name == "judge" and after.last_judgement is not None and after.last_judgement is not before.last_judgement:
        opened.set("pointsman.sufficiency", after.last_judgement.score)
    elif name == "propose" and after.proposal is not None:
        opened.set("pointsman.action", after.proposal.action.kind)
        searches = searches_of(after.proposal.action)
        if opened.content and searches:
            opened.set(semconv.TOOL_ARGUMENTS, json.dumps([each.query for each in searches], ensure_ascii=False))
    elif name == "guard" and len(after.refusals) > len(before.refusals):
        opened.set("pointsman.guard", after.refusals[-1].guard)
    elif name == "act":
        opened.set("pointsman.passages.held", len(after.evidence.held))
    if after.ending is not None:
        _tell_ending(opened, after)


def _tell_ending(opened: Span, run: RunState) -> None:
    if run.ending is not None:
        opened.set("pointsman.stop_reason", run.ending.reason.value)


def _join(channels: Channels) -> RunState:
    return replace(channels["run"], evidence=channels["evidence"])


def _split(state: RunState, before: Channels) -> Channels:
    """The channels that changed: the evidence is left out where it is the same."""
    after: Channels = {"run": replace(state, evidence=Evidence())}
    if state.evidence is not before["evidence"]:
        after["evidence"] = state.evidence
    return after
