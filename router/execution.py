"""The work of one run: embed, classify, retrieve, decide, answer, and record what happened.

The journal is written after each action that costs something and before anybody is told of the end.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from router.decide import Circumstances, Signals, decide
from router.describe import describe
from router.journal.codec import kept
from router.tasks import task_group
from standard.domain.answer import Answer, AnswerSource, Decision, Timings, Usage
from standard.domain.errors import AlreadyExists, PointsmanError
from standard.domain.event import (
    CitationMade,
    Completed,
    ContextCompressed,
    DecisionMade,
    Escalated,
    GuardTripped,
    PassagesFound,
    QueryIssued,
    SufficiencyJudged,
    TokenEmitted,
)
from standard.domain.question import Budget, Question, Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import numpy as np
    from numpy.typing import NDArray

    from router.journal.store import BegunRun
    from router.parts import GatewayParts
    from router.runs import LiveRun
    from router.sessions import Sessions
    from router.telemetry.metrics import Metrics
    from standard.domain.event import EventBody
    from standard.domain.outcome import RouteResult
    from standard.domain.passage import SearchResult

JOURNAL_SECONDS = 5.0
"""Longest wait for the journal at the end of a run."""

_log = structlog.get_logger("pointsman.run")


@dataclass(slots=True)
class Clockwork:
    """Timings of a run while it is made; seconds, `started` on the performance counter."""

    started: float
    embed: float = 0.0
    decide: float = 0.0
    retrieve: float = 0.0
    first_token: float = 0.0

    def timings(self) -> Timings:
        """The timings so far."""
        return Timings(self.embed, self.decide, self.retrieve, self.first_token, time.perf_counter() - self.started)


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What is known when the route is chosen; `vector` is the question's embedding (d,)."""

    vector: NDArray[np.float32]
    first: SearchResult
    signals: Signals


class Execution:
    """Works on one run. `run` takes the events; `sessions` knows earlier routes and the tenants' recent share."""

    def __init__(self, parts: GatewayParts, sessions: Sessions, run: LiveRun, question: Question) -> None:
        self._parts = parts
        self._sessions = sessions
        self._run = run
        self._question = question
        self._clock = Clockwork(time.perf_counter())
        self._recorded = 0

    async def work(self, replay: Callable[[str, str], Awaitable[None]]) -> None:
        """Work to the end and finish the run; `replay` fills it from the journal where its id is known already.

        Raises what a caller should see; the run's row is then closed as failed.
        """
        run, question = self._run, self._question
        async with task_group() as group:
            beginning = group.create_task(
                self._parts.journal.begin(
                    run.tenant, run.request_id, run.body_hash, self._kept_question(), question.session_id
                )
            )
            looking = group.create_task(self._look())
        begun = beginning.result()
        if not begun.fresh:
            if begun.body_hash != run.body_hash:
                raise AlreadyExists(f"request_id {run.request_id!r} was used for another question")
            await replay(run.tenant, run.request_id)
            return
        await self._answer_and_record(begun, looking.result())

    async def _answer_and_record(self, begun: BegunRun, look: FirstLook) -> None:
        try:
            answer = await self._answer(begun, look)
            completed = Completed(answer)
            # The journal holds the end before anybody is told of it.
            self._run.hold(completed, describe(completed))
            await asyncio.wait_for(self._record(begun, "done"), JOURNAL_SECONDS)
        except BaseException:
            await self._record_failure(begun)
            raise
        self._run.finish()

    async def _record(self, begun: BegunRun, state: str | None = None) -> None:
        fresh = self._run.recordable()[self._recorded :]
        if fresh or state:
            await self._parts.journal.append(begun.run_id, fresh, state=state)
            self._recorded += len(fresh)

    async def _record_failure(self, begun: BegunRun) -> None:
        recording = asyncio.ensure_future(asyncio.wait_for(self._record(begun, "failed"), JOURNAL_SECONDS))
        try:
            await asyncio.shield(recording)
        except (PointsmanError, TimeoutError):
            _log.warning("the journal could not record how a run ended")

    async def _look(self) -> FirstLook:
        parts, clock, question = self._parts, self._clock, self._question
        at = time.perf_counter()
        vector = await parts.embed(question.text.raw)
        now = time.perf_counter()
        clock.embed = now - at
        parts.metrics.embedded(clock.embed)
        first = await parts.retriever.search(question.scope, question.text.raw, vector, k=question.top_k)
        at = time.perf_counter()
        clock.retrieve = at - now
        parts.metrics.retrieved(first)
        signals = await self._signals(vector, first)
        clock.decide = time.perf_counter() - at
        return FirstLook(vector, first, signals)

    async def _signals(self, vector: NDArray[np.float32], first: SearchResult) -> Signals:
        models = self._parts.models()
        if models is None:
            return Signals()
        try:
            return await models.signals(self._question, vector, first)
        except PointsmanError:
            raise
        except Exception:  # noqa: BLE001 - a broken classifier must never cost an answer
            _log.exception("the classifier failed; taking the safe route")
            return Signals(model_version=models.version)

    def _circumstances(self) -> Circumstances:
        question = self._question
        return circumstances(
            question,
            session_route=self._sessions.route(question.scope.tenant, question.session_id),
            agentic_share=self._sessions.share(question.scope.tenant),
            priced=self._parts.has_llm,
        )

    async def _answer(self, begun: BegunRun, look: FirstLook) -> Answer:
        parts, question, clock = self._parts, self._question, self._clock
        at = time.perf_counter()
        policy = parts.policies.policy(question.scope.tenant)
        decision = decide(look.signals, self._circumstances(), policy)
        clock.decide += time.perf_counter() - at
        parts.metrics.decided(decision, clock.decide)

        async def emit(body: EventBody) -> None:
            if isinstance(body, TokenEmitted) and not clock.first_token:
                clock.first_token = time.perf_counter() - clock.started
            count_event(parts.metrics, body)
            self._run.append(body, describe(body))
            if isinstance(body, (PassagesFound, SufficiencyJudged)):
                await self._record(begun)

        await emit(DecisionMade(decision))
        waited = time.perf_counter() - clock.started
        parts.metrics.first_event_seconds.labels(decision.route.value).observe(waited)
        if question.dry_run:
            return dry_answer(question, decision, clock.timings())
        route, result = await self._route(look, decision, emit)
        self._sessions.remember(question.scope.tenant, question.session_id, route)
        answer = whole_answer(question, route, decision, result, clock.timings())
        parts.metrics.answered(answer, question.scope.tenant)
        return answer

    async def _route(
        self, look: FirstLook, decision: Decision, emit: Callable[[EventBody], Awaitable[None]]
    ) -> tuple[Route, RouteResult]:
        parts, question = self._parts, self._question
        if decision.route is Route.AGENTIC:
            result = await parts.agentic(question, look.vector, look.first, emit=emit, may_escalate=False)
            return Route.AGENTIC, result
        may_escalate = question.route is None and parts.settings.routing.escalate
        result = await parts.standard(question, look.vector, look.first, emit=emit, may_escalate=may_escalate)
        if not result.escalate:
            return Route.STANDARD, result
        parts.metrics.escalations.labels(result.escalate).inc()
        await emit(Escalated(Route.STANDARD, Route.AGENTIC, result.escalate))
        left = replace(question, budget=less(question.budget, result.usage))
        further = await parts.agentic(left, look.vector, look.first, emit=emit, may_escalate=False)
        return Route.AGENTIC, replace(further, usage=result.usage + further.usage)

    def _kept_question(self) -> dict[str, Any] | None:
        consent, question = self._parts.journal.consent, self._question
        if consent == "nothing":
            return None
        return {
            "question": kept(question.text.raw, consent),
            "collection": question.scope.collection,
            "route": question.route.value if question.route else "",
        }


def less(budget: Budget, usage: Usage) -> Budget:
    """What a route that handed over leaves of the caller's caps."""
    tokens, cost = budget.max_tokens, budget.max_cost_usd
    return replace(
        budget,
        max_tokens=None if tokens is None else max(tokens - usage.billed_tokens, 0),
        max_cost_usd=None if cost is None else max(cost - usage.cost_usd, 0.0),
    )


def circumstances(
    question: Question, *, session_route: Route | None, agentic_share: float, priced: bool
) -> Circumstances:
    """What bears on the decision beside the models; call within a running event loop."""
    seconds = None if question.deadline is None else question.deadline - asyncio.get_running_loop().time()
    if question.budget.max_seconds is not None:
        seconds = question.budget.max_seconds if seconds is None else min(seconds, question.budget.max_seconds)
    return Circumstances(
        forced=question.route,
        threshold=question.threshold,
        session_route=session_route,
        agentic_share=agentic_share,
        seconds_left=seconds,
        cost_left_usd=question.budget.max_cost_usd,
        priced=priced,
    )


def count_event(metrics: Metrics, body: EventBody) -> None:
    """Count what an event tells."""
    match body:
        case QueryIssued():
            metrics.actions.labels(body.action).inc()
        case PassagesFound():
            metrics.passages.labels("new").inc(len(body.passages))
            metrics.passages.labels("duplicate").inc(body.duplicates)
        case GuardTripped():
            metrics.guard_trips.labels(body.guard).inc()
        case SufficiencyJudged():
            metrics.sufficiency.observe(body.score)
        case ContextCompressed():
            metrics.compressions.inc()
            metrics.context_tokens.observe(body.tokens_after)
        case CitationMade():
            metrics.citations.labels("kept").inc()
        case _:
            pass


def whole_answer(question: Question, route: Route, decision: Decision, result: RouteResult, timings: Timings) -> Answer:
    """A route's result with everything the gateway knows beside it."""
    return Answer(
        request_id=question.request_id,
        text=result.text,
        source=result.source,
        outcome=result.outcome,
        stop_reason=result.stop_reason,
        route=route,
        decision=decision,
        citations=result.citations,
        clarification=result.clarification,
        notices=result.notices,
        steps=result.steps,
        usage=result.usage,
        timings=timings,
    )


def dry_answer(question: Question, decision: Decision, timings: Timings) -> Answer:
    """What a dry run returns: the decision and no answer."""
    return Answer(
        request_id=question.request_id,
        text="",
        source=AnswerSource.EXTRACTIVE,
        outcome=None,
        stop_reason=None,
        route=decision.route,
        decision=decision,
        notices=("dry run: decided only",),
        steps=0,
        timings=timings,
    )
