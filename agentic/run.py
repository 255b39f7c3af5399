"""Answers a question through the loop: the entry of the agentic route."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langgraph.types import Command
from langsmith import tracing_context

from agentic.answer import clarification_result, write_answer
from agentic.context import RunContext
from agentic.embedding import as_bytes
from agentic.events import found_event
from agentic.graph import Channels, build_graph, recursion_limit
from agentic.guards.dedup import Lot, admit
from agentic.library import retrieved_tokens
from agentic.settings import AgenticSettings, resolve_limits
from agentic.state import Evidence, IssuedQuery, RunState
from standard import semconv
from standard.domain.answer import AnswerSource, Usage
from standard.domain.errors import AlreadyExists, FailedPrecondition
from standard.domain.event import ClarificationAsked, PassagesScreened, QueryIssued
from standard.domain.outcome import RouteResult
from standard.outlet import Blocked, Outlet
from standard.pipeline import WITHHELD
from standard.screening import screen
from standard.spans import span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph
    from numpy.typing import NDArray

    from agentic.answer import AnswerWriter, MoreNeeded
    from agentic.compression import Compress
    from agentic.controllers.protocol import Pattern
    from agentic.critique import Critic
    from agentic.library import Embed, Library
    from standard.domain.event import Emit, EventBody
    from standard.domain.passage import SearchResult
    from standard.domain.question import Question
    from standard.spans import Value

AGENT = "pointsman"
"""The loop's name in traces."""


@dataclass(frozen=True, slots=True)
class AgenticParts:
    """What the route works with; made once by the composition root.

    `patterns` maps a controller's name (settings.controller) to its pattern; `offline` takes over where the model fails
    or none is configured. `critic` checks answers where settings.critique asks for it. `graph` is
    `build_graph(checkpointer)`, compiled once; `unkept` the same without a checkpointer, for runs without a name.
    `allowed_addresses` may stand in an answer beside its sources'.
    """

    library: Library
    embed: Embed
    writer: AnswerWriter
    offline: Pattern
    patterns: dict[str, Pattern]
    graph: CompiledStateGraph[Any, Any, Any, Any]
    unkept: CompiledStateGraph[Any, Any, Any, Any]
    settings: AgenticSettings = AgenticSettings()
    compress: Compress | None = None
    critic: Critic | None = None
    checkpointer: BaseCheckpointSaver[str] | None = None
    allowed_addresses: tuple[str, ...] = ()

    def pattern(self, controller: str | None) -> Pattern:
        """The pattern of that name, or of the settings; the offline one where it is not at hand."""
        return self.patterns.get(controller or self.settings.controller, self.offline)

    @property
    def has_llm(self) -> bool:
        """Is a language model configured?"""
        return bool(self.patterns)


def make_parts(
    library: Library,
    embed: Embed,
    writer: AnswerWriter,
    offline: Pattern,
    *,
    patterns: dict[str, Pattern] | None = None,
    settings: AgenticSettings | None = None,
    compress: Compress | None = None,
    critic: Critic | None = None,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    allowed_addresses: tuple[str, ...] = (),
) -> AgenticParts:
    """Put the route's parts together and compile its graph."""
    return AgenticParts(
        library=library,
        embed=embed,
        writer=writer,
        offline=offline,
        patterns=patterns or {},
        graph=build_graph(checkpointer),
        unkept=build_graph(),
        settings=settings or AgenticSettings(),
        compress=compress,
        critic=critic,
        checkpointer=checkpointer,
        allowed_addresses=allowed_addresses,
    )


async def answer_agentic(
    question: Question,
    first: SearchResult,
    vector: NDArray[np.float32],
    *,
    parts: AgenticParts,
    emit: Emit,
    controller: str | None = None,
    thread: str = "",
    watch: Callable[[RunState], None] | None = None,
) -> RouteResult:
    """Answer `question` through the loop. `first` is the retrieval that was made for the decision; it counts as step 1.

    `vector` (d,) is the question's embedding. `controller` overrides the settings' pattern. `thread` names the run's
    checkpoint (tenant and request id); without it, or without a checkpointer, the run lives in this process alone and a
    clarification ends it. `watch` is shown the state from which the answer is written, for measurements. Every cap ends
    in the best answer there is. Raises DatabaseUnavailable or EmbedderUnavailable
    only where nothing was found yet; cancelling it stops the work under way.
    """
    pattern = parts.pattern(controller)
    state, opening = begin(question, first, vector, parts.settings, snippets=pattern.snippets)
    channels: Channels = {"run": replace(state, evidence=Evidence()), "evidence": state.evidence}
    return await _run(
        channels,
        question,
        state,
        opening,
        parts=parts,
        emit=emit,
        controller=controller,
        thread=thread,
        watch=watch,
    )


async def resume_agentic(
    question: Question,
    *,
    parts: AgenticParts,
    emit: Emit,
    thread: str,
    replies: Sequence[str] = (),
    controller: str | None = None,
) -> RouteResult:
    """Go on with the run `thread` from its checkpoint: after a clarification or after a crash.

    `question` must be the one that began the run: scope and access come from it, never from the checkpoint. `replies`
    are all that the user has answered since, in order; the run may have taken the earlier ones already. Raises
    AlreadyExists where the run is of another question or was told something else, FailedPrecondition where there is no
    such run, or it waits for a reply that is not given.
    """
    if parts.checkpointer is None:
        raise FailedPrecondition("runs cannot be resumed: no checkpoints are kept")
    with tracing_context(enabled=False):
        snapshot = await parts.graph.aget_state(_config(thread))
    if not snapshot.values:
        raise FailedPrecondition("there is no run to resume under this request id")
    state: RunState = snapshot.values["run"]
    waiting = bool(snapshot.interrupts)
    reply = _next_reply(state, question, replies, waiting=waiting)
    result = snapshot.values.get("result")
    if isinstance(result, RouteResult):
        return result
    step: Any = Command(resume=reply) if waiting else None
    return await _run(
        step,
        question,
        replace(state, evidence=snapshot.values["evidence"]),
        parts=parts,
        emit=emit,
        controller=controller,
        thread=thread,
        # Time that a user took to answer is not the run's; time of an attempt that died is.
        elapsed_before=state.elapsed_seconds,
    )


def _next_reply(state: RunState, question: Question, replies: Sequence[str], *, waiting: bool) -> str:
    """The reply that the run has not taken yet, "" for none; raises where it is not this question's, or not told so."""
    # a question without a history may have been read with that of its session, which the run has
    other_history = bool(question.history) and state.history != question.history
    if state.question != question.asked or other_history:
        raise AlreadyExists("this run answers another question; give the new one a request id of its own")
    taken = [reply.answer.raw for reply in state.replies]
    if list(replies[: len(taken)]) != taken or (len(replies) > len(taken) and not waiting):
        raise AlreadyExists("this run went on with another reply than the one given")
    rest = replies[len(taken) :]
    if waiting and not any(reply.strip() for reply in rest[:1]):
        raise FailedPrecondition("the run waits for an answer to its question; resume it with an input")
    return rest[0] if rest else ""


def begin(
    question: Question,
    first: SearchResult,
    vector: NDArray[np.float32],
    settings: AgenticSettings,
    *,
    snippets: bool = False,
) -> tuple[RunState, tuple[EventBody, ...]]:
    """The state after step 1, the retrieval that was made for the decision, and the events that tell of it.

    With `snippets` its passages are snippets until they are read.
    """
    raw = as_bytes(vector.reshape(1, -1))[0]
    screened = screen(first)
    shown = screened.passages
    evidence, admissions = admit(Evidence(), [Lot(shown, 1)], wanted=len(shown), full=not snippets)
    issued = IssuedQuery(1, "hybrid", question.asked.raw, raw, len(admissions[0].new), admissions[0].duplicates)
    state = RunState(
        question=question.asked,
        limits=resolve_limits(settings, question.budget),
        settings=settings,
        history=question.history,
        top_k=question.top_k,
        corpus_size=first.corpus_size,
        term_idf=tuple(first.term_idf.items()),
        evidence=evidence,
        steps=1,
        queries=(issued,),
        usage=Usage(retrieved_tokens=retrieved_tokens(admissions[0])),
        notices=(WITHHELD,) if screened.findings and not shown else (),
    )
    asked = QueryIssued(1, "search", question.asked.raw, "the question itself")
    told = (PassagesScreened(screened.findings),) if screened.findings else ()
    return state, (asked, *told, found_event(issued, admissions[0]))


async def _run(
    step: Any,  # noqa: ANN401 - LangGraph takes channels, a command or None
    question: Question,
    state: RunState,
    opening: Sequence[EventBody] = (),
    *,
    parts: AgenticParts,
    emit: Emit,
    controller: str | None,
    thread: str,
    elapsed_before: float = 0.0,
    watch: Callable[[RunState], None] | None = None,
) -> RouteResult:
    clock = asyncio.get_running_loop().time
    keep = parts.checkpointer is not None and bool(thread)
    asked: list[ClarificationAsked] = []
    reached = state
    outlet = Outlet(emit, parts.writer.secret, parts.allowed_addresses)
    outlet.allow(held.passage.uri for held in state.evidence.held)

    def note(state: RunState) -> None:
        nonlocal reached
        reached = state

    async def emit_and_note(body: EventBody) -> None:
        if isinstance(body, ClarificationAsked):
            asked.append(body)
        await outlet(body)

    critic = parts.critic if parts.settings.critique else None

    async def write(state: RunState) -> RouteResult | MoreNeeded:
        note(state)
        if watch is not None:
            watch(state)
        outlet.allow(held.passage.uri for held in state.evidence.held)
        written = await write_answer(
            state,
            parts.writer,
            outlet,
            llm_configured=parts.has_llm,
            critic=critic,
            style=question.style,
            said=question.text,
        )
        return await outlet.close(written) if isinstance(written, RouteResult) else written

    context = RunContext(
        pattern=parts.pattern(controller),
        offline=parts.offline,
        library=parts.library,
        embed=parts.embed,
        scope=question.scope,
        emit=emit_and_note,
        note=note,
        write_answer=write,
        compress=parts.compress,
        clock=clock,
        started=clock(),
        elapsed_before=elapsed_before,
        deadline=question.deadline,
        can_ask=keep,
    )
    graph = parts.graph if keep else parts.unkept
    config = _config(thread if keep else "")
    # The environment may switch LangSmith's tracing on; questions and passages do not leave through that door.
    attributes: dict[str, Value] = {semconv.OPERATION: semconv.INVOKE_AGENT, semconv.AGENT: AGENT}
    with tracing_context(enabled=False), span(f"{semconv.INVOKE_AGENT} {AGENT}", attributes) as opened:
        try:
            for body in opening:
                await outlet(body)
            values: dict[str, Any] = await graph.ainvoke(
                step, config, context=context, durability="sync" if keep else None
            )
            result = values.get("result")
            if not isinstance(result, RouteResult):
                question_back = asked[-1].question if asked else ""
                return await outlet.close(await clarification_result(values["run"], question_back, outlet))
        except Blocked:
            result = await outlet.close_blocked(AnswerSource.GENERATED, steps=reached.steps, usage=reached.usage)
        opened.set("pointsman.steps", result.steps)
        if keep and parts.checkpointer is not None:
            await parts.checkpointer.adelete_thread(thread)
        return result


def _config(thread: str) -> Any:  # noqa: ANN401 - a RunnableConfig
    limit = {"recursion_limit": recursion_limit()}
    return {"configurable": {"thread_id": thread}, **limit} if thread else limit
