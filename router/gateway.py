"""The use case: a question becomes a run, a run becomes events, events become an answer.

Nothing here knows the wire or SQL; the parts come from the composition root.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import structlog

from router.access.admission import Admission
from router.access.limits import Spent, spent_now
from router.asked import asked_text, embedded_text
from router.decide import Signals, decide
from router.execution import JOURNAL_SECONDS, Execution, circumstances
from router.journal.question import may_see, question_of, replies_of
from router.routing.outcomes import Feedback, verdict_of_feedback
from router.routing.sessions import Sessions
from router.runs import LiveRun, RunRegistry
from router.telemetry.calls import answered, named, new_request_id
from standard import semconv
from standard.domain.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidInput,
    NotFound,
    PointsmanError,
    Unavailable,
)
from standard.domain.event import Completed, Event
from standard.retrieval.pin import pin_generations
from standard.spans import span
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from classifier.explain import Explanation
    from router.journal.store import StoredRun
    from router.parts import GatewayParts
    from router.rollout.shadow import Aside
    from standard.domain.answer import Answer, Decision
    from standard.domain.passage import Scope, SearchResult
    from standard.domain.question import Question, Route
    from standard.spans import Span

_log = structlog.get_logger("pointsman.gateway")


class Gateway:
    """Answers questions. Use as an async context manager: it owns the tasks of its runs."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._runs = RunRegistry()
        self._sessions = Sessions()
        server = parts.settings.server
        self._admission = Admission(server.max_inflight, server.max_queued, server.queue_timeout_seconds, parts.metrics)
        self._stack = AsyncExitStack()
        self._tasks: asyncio.TaskGroup | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._asides: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(task_group())
        self._renewing = self._tasks.create_task(self._renew_leases(), name="leases")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks = None
        if self._renewing is not None:
            self._renewing.cancel()
        for run in self._runs.all():
            if run.task is not None:
                run.task.cancel("the server stops")
        for aside in self._asides:
            aside.cancel("the server stops")
        await self._stack.__aexit__(kind, error, trace)

    async def _renew_leases(self) -> None:
        """Keep the runs of this process its own, well before their leases run out."""
        journal = self._parts.journal
        while True:
            await asyncio.sleep(journal.lease_seconds / 3)
            try:
                await journal.renew([run.held for run in self._runs.all() if run.held is not None])
            except PointsmanError as error:
                _log.warning("leases could not be renewed; trying again", error=error.message)

    def place(self) -> AbstractAsyncContextManager[None]:
        """Hold a place among the questions that are worked on at once, for a search beside them. Raises Overloaded."""
        return self._admission.place()

    async def answer(self, question: Question) -> Answer:
        """Answer a question: the folded stream."""
        answer: Answer | None = None
        async with aclosing(self.stream(question)) as events:
            async for event in events:
                if isinstance(event.body, Completed):
                    answer = event.body.answer
        if answer is None:
            raise FailedPrecondition("the run ended without an answer")
        return answer

    async def stream(self, question: Question) -> AsyncGenerator[Event]:
        """Answer a question as events; the last is Completed.

        A request id that is known with the same body attaches to that run or replays it; with another body it is
        AlreadyExists. Leaving the iteration cancels the run when nobody else reads it.
        """
        if not question.request_id:
            question = replace(question, request_id=new_request_id())
        named(question.request_id)
        digest = body_hash(question)

        def start() -> LiveRun:
            scope = question.scope
            run = LiveRun(
                scope.tenant,
                question.request_id,
                digest,
                groups=scope.groups,
                collection=scope.collection,
                narrowed=scope.narrowed,
            )
            return self._start(run, question)

        async with aclosing(self._attached(question.scope.tenant, question.request_id, start)) as attached:
            async for run in attached:
                if run.body_hash != digest:
                    raise AlreadyExists(f"request_id {run.request_id!r} was used for another question")
                async with aclosing(self._read(run, 0)) as events:
                    async for event in events:
                        yield event

    async def resume(
        self,
        scope: Scope,
        request_id: str,
        after_sequence: int,
        *,
        reply: str,
        deadline: float | None,
        collections: frozenset[str] | None = None,
    ) -> AsyncGenerator[Event]:
        """Re-attach to a run after an event, or continue it.

        A live run goes on, a finished one is replayed from the journal, one whose worker died is taken over, one that
        waits for its user goes on with their `reply`. Of `scope` the tenant and the groups count: what else a run may
        see is kept with its question; its collection must be among `collections` (None = all). `deadline` is the event
        loop's time at which the answer must be out.
        """
        tenant = scope.tenant
        named(request_id)
        stored: StoredRun | None = None
        if self._runs.get(tenant, request_id) is None:
            stored = await self._parts.journal.load(tenant, request_id, after_sequence=after_sequence)
            if stored is None or not may_see(stored.question, scope.groups, collections):
                raise NotFound(f"no run {request_id!r}")
            if reply and stored.state != "waiting" and replies_of(stored.question)[-1:] != [reply]:
                raise FailedPrecondition(f"run {request_id!r} does not wait for input")
            if stored.state == "done" or (stored.state == "waiting" and not reply):
                for event in self._replayed(stored):
                    yield event
                return

        def start() -> LiveRun:
            if stored is None:  # it ended since; whoever asks again finds it in the journal
                raise Unavailable(f"run {request_id!r} has just ended; ask again", retry_after_seconds=0.1)
            question = question_of(stored.question, tenant, request_id, deadline)
            run = LiveRun(
                tenant,
                request_id,
                stored.body_hash,
                groups=question.scope.groups,
                collection=question.scope.collection,
                narrowed=question.scope.narrowed,
                reply=reply,
            )
            return self._start(run, question, known=True)

        async with aclosing(self._attached(tenant, request_id, start)) as attached:
            async for run in attached:
                hidden = collections is not None and not (run.narrowed and run.collection in collections)
                if hidden or not run.groups <= scope.groups:
                    raise NotFound(f"no run {request_id!r}")
                if reply and run.reply != reply:
                    raise FailedPrecondition(f"run {request_id!r} does not wait for input")
                async with aclosing(self._read(run, after_sequence)) as events:
                    async for event in events:
                        yield event

    async def asked_back(
        self,
        scope: Scope,
        reply: str,
        *,
        request_id: str = "",
        session_id: str = "",
        said: str = "",
        collections: frozenset[str] | None = None,
    ) -> tuple[str, int] | None:
        """The run whose question back is answered by `reply`, and the sequence of the event that asked it.

        That is the run `request_id`, or else the latest of `session_id` where it asked what the caller says was `said`.
        None where such a run does not wait, nor was answered with just that before, or is not for this caller. For
        `resume`, which goes on with it.
        """
        journal = self._parts.journal
        run_id = request_id or (await journal.latest_of(scope.tenant, session_id) if session_id else None)
        if not run_id or journal.consent != "text":
            return None
        stored = await journal.load(scope.tenant, run_id)
        if stored is None or not may_see(stored.question, scope.groups, collections):
            return None
        if stored.state != "waiting" and replies_of(stored.question)[-1:] != [reply]:
            return None
        asked = [
            (event.sequence, event.body.answer.clarification)
            for event in journal.events(stored)
            if isinstance(event.body, Completed) and event.body.answer.clarification
        ]
        if not asked or (not request_id and asked[-1][1].strip() != said.strip()):
            return None
        return run_id, asked[-1][0]

    def _replayed(self, stored: StoredRun) -> list[Event]:
        if self._parts.journal.consent != "text":
            raise FailedPrecondition(f"run {stored.request_id!r} can't be replayed: the journal keeps no text")
        return self._parts.journal.events(stored)

    async def _attached(self, tenant: str, request_id: str, start: Callable[[], LiveRun]) -> AsyncGenerator[LiveRun]:
        """Yield the live run of that name once, or the one that `start` begins; for it a place is held meanwhile."""
        run = self._runs.get(tenant, request_id)
        if run is not None:
            yield run
            return
        if self._parts.limits is not None:
            await self._parts.limits.check_spending(tenant)
        async with self._admission.place():
            # Another call of the same id may have begun while this one waited for a place.
            yield self._runs.get(tenant, request_id) or start()

    def _start(self, run: LiveRun, question: Question, *, known: bool = False) -> LiveRun:
        if self._tasks is None:
            raise Unavailable("the gateway is stopping; ask again with the same id", retry_after_seconds=1.0)
        run.task = self._tasks.create_task(self._produce(run, question, known=known), name=f"run {run.request_id}")
        self._runs.add(run)
        return run

    async def _read(self, run: LiveRun, after_sequence: int) -> AsyncGenerator[Event]:
        run.readers += 1
        try:
            async with aclosing(run.read(after_sequence)) as events:
                async for event in events:
                    if isinstance(event.body, Completed):
                        answered(event.body.answer)
                    yield event
        finally:
            run.readers -= 1
            abandoned = run.readers == 0 and not run.finished and not self._parts.settings.journal.detach
            if abandoned and run.task is not None:
                # Whoever asks the same from now on must not be told of a cancellation that was not theirs.
                self._runs.remove(run)
                run.task.cancel("the last reader left")
                # The caller learns of the end only when the work has really stopped.
                await asyncio.wait([run.task], timeout=JOURNAL_SECONDS)

    async def _produce(self, run: LiveRun, question: Question, *, known: bool) -> None:
        """Work on a run to its end; every error ends in the run, never in the task group."""
        spent = Spent()
        spent_now.set(spent)  # of this task alone
        pin_generations()
        try:
            with (
                structlog.contextvars.bound_contextvars(request_id=run.request_id, tenant=run.tenant),
                span("pointsman.run") as opened,
            ):
                _tell(opened, question)
                self._begin_aside(await Execution(self._parts, self._sessions, run, question).work(known=known))
        except asyncio.CancelledError:
            message = "the run was stopped before its end; ask again with the same id"
            run.finish(Unavailable(message, retry_after_seconds=1.0))
            raise
        except PointsmanError as error:
            run.finish(error)
        except Exception as error:  # noqa: BLE001 - the boundary of a run: logged here, told to its readers as INTERNAL
            _log.exception("run failed", request_id=run.request_id)
            run.finish(error)
        finally:
            self._runs.remove(run)
            await self._charge(run.tenant, spent)

    def _begin_aside(self, aside: Aside | None) -> None:
        """Answer a question aside, where it is wanted and there is a place."""
        shadow = self._parts.shadow
        if aside is None or shadow is None or self._tasks is None or not shadow.take_place():
            return
        task = self._tasks.create_task(shadow.answer(aside), name=f"aside {aside.question.request_id}")
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    async def _charge(self, tenant: str, spent: Spent) -> None:
        """Charge a tenant for what a run used, however it ended; a cancellation does not cut this short."""
        if self._parts.limits is None or not spent.usage.llm_calls:
            return
        charging = asyncio.create_task(self._parts.limits.charge(tenant, spent.usage))
        while not charging.done():  # bounded by the store's own timeout
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(charging)
        charging.result()

    async def classify(
        self, question: Question, *, explain: bool, look: bool = False
    ) -> tuple[Decision, Explanation | None]:
        """Decide from the text alone, or with `look` from the first retrieval as well; say what moved it.

        Raises what the retriever and the embedder raise, with `look` alone.
        """
        parts, at = self._parts, time.perf_counter()
        models = parts.models()
        signals = Signals()
        reasons: Explanation | None = None
        seen: tuple[NDArray[np.float32], SearchResult] | None = None
        if look:
            vector = await parts.embed(embedded_text(question))
            seen = vector, await parts.retriever.search(question.scope, asked_text(question), vector, k=question.top_k)
        if models is not None:
            try:
                reading = await models.read(question)
                signals = models.text_signals(reading) if seen is None else await models.signals(reading, *seen)
                reasons = await models.explain(reading, *(seen or ())) if explain else None
            except Exception:  # noqa: BLE001 - a broken classifier is never an error: the safe route, and counted
                _log.exception("the classifier failed; saying the safe route")
                signals = Signals(model_version=models.version)
        tenant = question.scope.tenant
        around = circumstances(question, session_route=None, agentic_share=0.0, priced=parts.has_llm)
        decision = decide(signals, around, parts.policies.policy(tenant))
        parts.metrics.decided(decision, time.perf_counter() - at)
        return decision, reasons

    async def feedback(
        self, tenant: str, request_id: str, rating: float | None, correct_route: Route | None, comment: str
    ) -> None:
        """Store what somebody thought of an answer, and count what it says of the route.

        NotFound where there is no such run.
        """
        if rating is None and correct_route is None and not comment:
            raise InvalidInput("rating", "give a rating, a correct_route or a comment")
        route = correct_route.value if correct_route else ""
        run = await self._parts.journal.judged(tenant, request_id)
        if run is None or not await self._parts.journal.add_feedback(tenant, request_id, rating, route, comment):
            raise NotFound(f"no run {request_id!r}")
        found = verdict_of_feedback(run.facts, run.feedback, Feedback(rating, correct_route))
        if found is not None:
            self._parts.metrics.verdicts.labels(found.value).inc()


def _tell(opened: Span, question: Question) -> None:
    """Say on a run's span what it works on."""
    if not opened.recording:
        return
    opened.set("pointsman.request_id", question.request_id)
    opened.set("pointsman.tenant", question.scope.tenant)
    if question.session_id:
        opened.set(semconv.CONVERSATION, question.session_id)
    if question.probe:
        opened.set("pointsman.probe", value=True)
    if opened.content:
        opened.set("pointsman.question", question.text.raw)


def body_hash(question: Question) -> str:
    """SHA-256 over everything of a request, and of its caller's access, that changes its answer; 64 hex digits."""
    body = [
        question.text.raw,
        [(turn.role, turn.text.raw) for turn in question.history],
        question.scope.collection,
        repr(question.scope.filter),
        question.route,
        question.threshold,
        question.top_k,
        repr(question.budget),
        question.session_id,
        question.dry_run,
        sorted(question.scope.groups),
        *(["narrowed"] if question.scope.narrowed else []),
    ]
    return hashlib.sha256(json.dumps(body).encode("utf-8", "replace")).hexdigest()
