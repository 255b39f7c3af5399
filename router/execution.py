"""The work of one run: embed, classify, retrieve, decide, answer, and record what happened.

The journal is written after each action that costs something and before anybody is told of the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from router.answers import agentic_decision, dry_answer, less, whole_answer
from router.decide import Circumstances, decide, lets_agentic
from router.describe import describe
from router.journal.question import kept_question, learned, replies_of
from router.looking import Clockwork, FirstLook, first_look, styled
from router.rollout.place import canary_place
from router.rollout.shadow import Aside, wants_aside
from router.routing.outcomes import facts_of, verdict
from router.style import told_of
from router.telemetry.events import count_event
from router.telemetry.redaction import tellable
from standard import spans
from standard.domain.answer import Answer, Decision, Outcome, Usage
from standard.domain.errors import (
    AlreadyExists,
    DatabaseUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    NotFound,
    PointsmanError,
)
from standard.domain.event import (
    Completed,
    DecisionMade,
    Escalated,
    PassagesFound,
    SufficiencyJudged,
    TokenEmitted,
)
from standard.domain.question import Question, Route
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.decide import Policy
    from router.journal.store import BegunRun, StoredRun
    from router.parts import GatewayParts
    from router.routing.sessions import Sessions
    from router.runs import LiveRun
    from standard.domain.event import Event, EventBody
    from standard.domain.outcome import RouteResult

JOURNAL_SECONDS = 5.0
"""Longest wait for the journal at the end of a run."""
FOLLOW_SECONDS = 0.5
"""How often the journal is asked for news of a run that another worker has."""

_log = structlog.get_logger("pointsman.run")


class Execution:
    """Works on one run. `run` takes the events; `sessions` knows earlier routes and the tenants' recent share."""

    def __init__(self, parts: GatewayParts, sessions: Sessions, run: LiveRun, question: Question) -> None:
        self._parts = parts
        self._sessions = sessions
        self._run = run
        self._question = question
        self._clock = Clockwork(time.perf_counter())
        self._recorded = 0
        self._replies: list[str] = []
        self._looked: FirstLook | None = None
        self._condensing = Usage()
        self._earlier = ""

    async def work(self, *, known: bool = False) -> Aside | None:
        """Work to the end, finish the run, and return what is to be answered aside, if it is.

        `known`: the question came from the journal, where the run is. A run that is done, or that another worker has,
        is read from the journal; one whose worker failed or died is taken over. Raises what a caller should see; the
        run's row is then closed as failed.
        """
        run = self._run
        try:
            if known:
                aside = await self._settle(await self._claim(), None)
            else:
                aside = await self._settle(*await self._begin_and_look())
        except BaseException as error:
            await self._record_failure(error)
            raise
        run.finish()
        return aside

    async def _begin_and_look(self) -> tuple[BegunRun, FirstLook | Exception]:
        """Both at once. A look that fails does not undo the beginning: the row must be closed, or needs no look."""

        async def is_ours() -> bool:
            return (await asyncio.shield(beginning)).owner != ""

        async def look() -> FirstLook | Exception:
            try:
                return await first_look(self._parts, self._question, self._clock, is_ours)
            except Exception as error:  # noqa: BLE001 - raised by `_settle`, once it is clear whether it matters
                return error

        async with task_group() as group:
            beginning = group.create_task(self._begin())
            looking = group.create_task(look())
        return beginning.result(), looking.result()

    async def _begin(self) -> BegunRun:
        run, question, journal = self._run, self._question, self._parts.journal
        return self._noted(
            await journal.begin(
                run.tenant,
                run.request_id,
                run.body_hash,
                kept_question(question, journal.consent),
                question.session_id,
            )
        )

    async def _claim(self) -> BegunRun:
        run = self._run
        return self._noted(await self._parts.journal.claim(run.tenant, run.request_id, run.body_hash, reply=run.reply))

    def _noted(self, begun: BegunRun) -> BegunRun:
        if begun.owner:
            self._run.held = begun
        return begun

    async def _settle(self, begun: BegunRun, look: FirstLook | Exception | None) -> Aside | None:
        run = self._run
        if isinstance(look, FirstLook):
            self._note(look)
        while not begun.owner:
            if begun.body_hash != run.body_hash:
                raise AlreadyExists(f"request_id {run.request_id!r} was used for another question")
            if self._parts.journal.consent != "text":
                raise FailedPrecondition(f"run {run.request_id!r} can't be replayed: the journal keeps no text")
            if begun.state in {"done", "waiting"}:
                await self._catch_up()
                return None
            await self._follow()
            begun = await self._claim()
        answer: Answer | None = None
        if begun.state:  # it was somebody's before
            await self._catch_up()
            opened = spans.current()
            if self._earlier and opened is not None:
                opened.link(self._earlier)
            self._recorded = len(run.events)
            answer = await self._carry_on()
        if answer is None:
            if isinstance(look, Exception):
                raise look
            if look is None:
                look = await first_look(self._parts, self._question, self._clock)
                self._note(look)
            held = self._run.held
            values = learned(look.question)
            if values and look.learned and held is not None and self._parts.journal.consent == "text":
                await self._parts.journal.learn(held, values)
            answer = await self._answer(look)
        await self._end(answer)
        return self._aside(begun, answer)

    def _note(self, look: FirstLook) -> None:
        self._question = look.question
        self._condensing = look.condensing

    def _aside(self, begun: BegunRun, answer: Answer) -> Aside | None:
        looked, question = self._looked, self._question
        if looked is None or self._parts.shadow is None:
            return None
        if not wants_aside(question, answer, self._parts.policies.policy(question.scope.tenant)):
            return None
        return Aside(begun.run_id, question, looked.vector, looked.first, answer)

    async def _end(self, answer: Answer) -> None:
        waits = answer.outcome is Outcome.NEEDS_CLARIFICATION and self._parts.resume is not None
        completed = Completed(answer)
        # The journal holds the end before anybody is told of it.
        self._run.hold(completed, describe(completed))
        try:
            async with asyncio.timeout(JOURNAL_SECONDS):
                await self._record(self._run.recordable(), "waiting" if waits else "done")
        except TimeoutError:
            message = "the journal did not take the end of the run in time; ask again with the same id"
            raise DatabaseUnavailable(message, retry_after_seconds=1.0) from None
        self._run.held = None
        if waits or self._question.probe:
            return
        found = verdict(facts_of(event.body for event in self._run.recordable()))
        if found is not None:
            self._parts.metrics.verdicts.labels(found.value).inc()

    async def _catch_up(self) -> StoredRun:
        """Take what the journal has of the run beyond what its readers were shown."""
        run, journal = self._run, self._parts.journal
        stored = await journal.load(run.tenant, run.request_id, after_sequence=len(run.events))
        if stored is None:
            raise NotFound(f"no run {run.request_id!r}")
        run.take_over(journal.events(stored))
        self._earlier = next((entry.trace for entry in reversed(stored.entries) if entry.trace), self._earlier)
        self._replies = replies_of(stored.question)
        if run.reply and self._replies[-1:] != [run.reply]:  # somebody else's reply came first
            raise FailedPrecondition(f"run {run.request_id!r} does not wait for input")
        return stored

    async def _follow(self) -> None:
        """Read the events of another worker's run as it journals them, until it ends or deserts the run."""
        now = asyncio.get_running_loop().time
        deadline = self._question.deadline
        if deadline is None:
            deadline = now() + self._parts.settings.server.default_timeout_seconds
        pause = FOLLOW_SECONDS / 10
        while True:
            stored = await self._catch_up()
            if stored.state != "running" or stored.deserted:
                return
            if now() + pause > deadline:
                message = f"run {self._run.request_id!r} is still worked on elsewhere; ask again with the same id"
                raise DeadlineExceeded(message)
            await asyncio.sleep(pause)
            pause = min(2 * pause, FOLLOW_SECONDS)

    async def _carry_on(self) -> Answer | None:
        """Go on from the run's checkpoint, or return None where there is none that one could go on from."""
        run, resume = self._run, self._parts.resume
        decision = agentic_decision(run.events)
        if resume is None or decision is None:
            return None
        before = len(run.events)
        self._question = await styled(self._parts, self._question)
        try:
            result = await resume(self._question, emit=self._emit, replies=self._replies)
        except FailedPrecondition as error:
            if run.reply or len(run.events) > before:
                raise
            _log.info("the run begins again", request_id=run.request_id, reason=error.message)
            await self._parts.journal.forget_state(run.tenant, run.request_id)
            return None
        return self._whole(Route.AGENTIC, decision, result)

    async def _record(self, events: Sequence[Event], state: str = "running") -> None:
        held = self._run.held
        fresh = events[self._recorded :]
        if held is not None and (fresh or state != "running"):
            trace = spans.outgoing().get("traceparent", "")
            await self._parts.journal.append(held, fresh, state=state, trace=trace)
            self._recorded += len(fresh)

    async def _record_failure(self, cause: BaseException) -> None:
        """Close the row of a run that failed or was cancelled; another cancellation does not cut this short."""
        if self._run.held is None:
            return
        closing = asyncio.create_task(self._close_failed(cause))
        while not closing.done():
            # Bounded by the timeout in `_close_failed`; what ended the run is raised by the caller.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(closing)
        self._run.held = None

    async def _close_failed(self, cause: BaseException) -> None:
        run, journal = self._run, self._parts.journal
        try:
            async with asyncio.timeout(JOURNAL_SECONDS):
                try:
                    await self._record(run.events, "failed")
                except NotFound:  # erased: what the route kept of it meanwhile has to go as well
                    await journal.forget_state(run.tenant, run.request_id)
                else:
                    if not isinstance(cause, PointsmanError | asyncio.CancelledError):
                        # Its state may be what it failed of: whoever asks again begins anew.
                        await journal.forget_state(run.tenant, run.request_id)
        except Exception as error:  # noqa: BLE001 - what ended the run must not be hidden by this
            _log.warning(
                "the journal could not record how a run ended", request_id=run.request_id, error=tellable(error)
            )

    def _circumstances(self, policy: Policy) -> Circumstances:
        question = self._question
        return circumstances(
            question,
            session_route=self._sessions.route(question.scope.tenant, question.session_id),
            agentic_share=self._sessions.share(question.scope.tenant),
            priced=self._parts.has_llm,
            place=canary_place(question, policy.canary_by),
        )

    async def _answer(self, look: FirstLook) -> Answer:
        parts, question, clock = self._parts, self._question, self._clock
        at = time.perf_counter()
        policy = parts.policies.policy(question.scope.tenant)
        around = self._circumstances(policy)
        decision = decide(look.signals, around, policy)
        self._looked = look
        clock.decide += time.perf_counter() - at
        parts.metrics.decided(decision, clock.decide)
        _tell(decision)
        if parts.drift is not None and not question.probe:
            parts.drift.note(look.signals, look.vector)
        await self._emit(DecisionMade(decision))
        waited = time.perf_counter() - clock.started
        parts.metrics.first_event(decision.route.value, waited)
        if question.dry_run:
            return dry_answer(question, decision, clock.timings())
        return self._whole(*await self._route(look, decision, lets_agentic(around, policy)))

    async def _emit(self, body: EventBody) -> None:
        clock = self._clock
        if isinstance(body, TokenEmitted) and not clock.first_token:
            clock.first_token = time.perf_counter() - clock.started
            if (opened := spans.recording()) is not None:
                opened.note("first token", {})
        count_event(self._parts.metrics, body)
        self._run.append(body, describe(body))
        if isinstance(body, (PassagesFound, SufficiencyJudged)):
            await self._record(self._run.events)

    def _whole(self, route: Route, decision: Decision, result: RouteResult) -> Answer:
        question = self._question
        result = told_of(replace(result, usage=result.usage + self._condensing), question.style)
        self._sessions.remember(question.scope.tenant, question.session_id, route)
        answer = whole_answer(question, route, decision, result, self._clock.timings())
        self._parts.metrics.answered(answer, question.scope.tenant)
        return answer

    async def _route(self, look: FirstLook, decision: Decision, agentic: bool) -> tuple[Route, Decision, RouteResult]:
        parts, question, emit = self._parts, self._question, self._emit
        if decision.route is Route.AGENTIC:
            result = await parts.agentic(question, look.vector, look.first, emit=emit, may_escalate=False)
            return Route.AGENTIC, decision, result
        may_escalate = question.route is None and parts.settings.routing.escalate and agentic
        result = await parts.standard(question, look.vector, look.first, emit=emit, may_escalate=may_escalate)
        if not result.escalate:
            return Route.STANDARD, decision, result
        parts.metrics.escalations.labels(result.escalate).inc()
        await emit(Escalated(Route.STANDARD, Route.AGENTIC, result.escalate))
        left = replace(question, budget=less(question.budget, result.usage))
        further = await parts.agentic(left, look.vector, look.first, emit=emit, may_escalate=False)
        return Route.AGENTIC, decision, replace(further, usage=result.usage + further.usage)


def _tell(decision: Decision) -> None:
    """Write on the run's span what was decided, and why."""
    opened = spans.recording()
    if opened is None:
        return
    opened.set("pointsman.decision", decision.route.value)
    opened.set("pointsman.decision.reason", decision.reason.value)
    opened.set("pointsman.decision.threshold", decision.threshold)
    if decision.complex_probability is not None:
        opened.set("pointsman.decision.complex_probability", decision.complex_probability)


def circumstances(
    question: Question, *, session_route: Route | None, agentic_share: float, priced: bool, place: float = 0.0
) -> Circumstances:
    """What bears on the decision beside the models; call within a running event loop.

    `place` is the question's in a canary; at 0 it is in any.
    """
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
        canary_place=place,
    )
