"""The use case: a question becomes a run, a run becomes events, events become an answer.

Nothing here knows the wire or SQL; the parts come from the composition root.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import uuid
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import structlog

from router.admission import Admission
from router.decide import Signals, decide
from router.execution import JOURNAL_SECONDS, Execution, circumstances
from router.runs import LiveRun, RunRegistry
from router.sessions import Sessions
from router.tasks import task_group
from standard.domain.errors import AlreadyExists, FailedPrecondition, InvalidInput, NotFound, PointsmanError
from standard.domain.event import Completed, Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType

    from router.parts import GatewayParts
    from standard.domain.answer import Answer, Decision
    from standard.domain.question import Question, Route

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

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for run in self._runs.all():
            if run.task is not None:
                run.task.cancel("the server stops")
        await self._stack.__aexit__(kind, error, trace)

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
            question = replace(question, request_id=uuid.uuid4().hex)
        digest = body_hash(question)
        run = self._runs.get(question.scope.tenant, question.request_id)
        if run is None:
            async with self._admission.place():
                # Another call of the same id may have begun while this one waited for a place.
                run = self._runs.get(question.scope.tenant, question.request_id) or self._begin(question, digest)
                async with aclosing(self._read(run, digest, 0)) as events:
                    async for event in events:
                        yield event
        else:
            async with aclosing(self._read(run, digest, 0)) as events:
                async for event in events:
                    yield event

    async def resume(self, tenant: str, request_id: str, after_sequence: int, reply: str) -> AsyncGenerator[Event]:
        """Re-attach to a run after an event: a live one continues, a finished one is replayed from the journal."""
        run = self._runs.get(tenant, request_id)
        if reply:
            raise FailedPrecondition(f"run {request_id!r} does not wait for input")
        if run is not None:
            async with aclosing(self._read(run, run.body_hash, after_sequence)) as events:
                async for event in events:
                    yield event
            return
        for event in await self._replay(tenant, request_id, after_sequence):
            yield event

    async def _replay(self, tenant: str, request_id: str, after_sequence: int) -> list[Event]:
        journal = self._parts.journal
        stored = await journal.load(tenant, request_id, after_sequence=after_sequence)
        if stored is None:
            raise NotFound(f"no run {request_id!r}")
        if stored.state != "done":
            raise FailedPrecondition(f"run {request_id!r} has no answer (it is {stored.state}); use a new id")
        if journal.consent != "text":
            raise FailedPrecondition(f"run {request_id!r} can't be replayed: the journal keeps no text")
        return journal.events(stored)

    def _begin(self, question: Question, digest: str) -> LiveRun:
        if self._tasks is None:
            raise FailedPrecondition("the gateway is not open")
        run = LiveRun(question.scope.tenant, question.request_id, digest)
        self._runs.add(run)
        run.task = self._tasks.create_task(self._produce(run, question), name=f"run {question.request_id}")
        return run

    async def _read(self, run: LiveRun, digest: str, after_sequence: int) -> AsyncGenerator[Event]:
        if run.body_hash != digest:
            raise AlreadyExists(f"request_id {run.request_id!r} was used for another question")
        run.readers += 1
        try:
            async with aclosing(run.read(after_sequence)) as events:
                async for event in events:
                    yield event
        finally:
            run.readers -= 1
            abandoned = run.readers == 0 and not run.finished and not self._parts.settings.journal.detach
            if abandoned and run.task is not None:
                run.task.cancel("the last reader left")
                # The caller learns of the end only when the work has really stopped.
                await asyncio.wait([run.task], timeout=JOURNAL_SECONDS)

    async def _produce(self, run: LiveRun, question: Question) -> None:
        """Work on a run to its end; every error ends in the run, never in the task group."""

        async def replay(tenant: str, request_id: str) -> None:
            for event in await self._replay(tenant, request_id, 0):
                run.append(event.body, event.text)
            run.finish()

        try:
            with structlog.contextvars.bound_contextvars(request_id=run.request_id, tenant=run.tenant):
                await Execution(self._parts, self._sessions, run, question).work(replay)
        except asyncio.CancelledError:
            run.finish(asyncio.CancelledError("the run was cancelled"))
            raise
        except PointsmanError as error:
            run.finish(error)
        except Exception as error:  # noqa: BLE001 - the boundary of a run: logged here, told to its readers as INTERNAL
            _log.exception("run failed", request_id=run.request_id)
            run.finish(error)
        finally:
            self._runs.remove(run)

    async def classify(self, question: Question, *, explain: bool) -> tuple[Decision, list[tuple[str, float]]]:
        """Decide from the text alone, and say what moved it: (feature, log-odds), strongest first."""
        at = time.perf_counter()
        vector = await self._parts.embed(question.text.raw)
        models = self._parts.models()
        signals = Signals() if models is None else models.text_signals(question, vector)
        tenant = question.scope.tenant
        around = circumstances(question, session_route=None, agentic_share=0.0, priced=self._parts.has_llm)
        decision = decide(signals, around, self._parts.policies.policy(tenant))
        self._parts.metrics.decided(decision, time.perf_counter() - at)
        return decision, models.explain(question, vector) if explain and models is not None else []

    async def feedback(
        self, tenant: str, request_id: str, rating: float | None, correct_route: Route | None, comment: str
    ) -> None:
        """Store what somebody thought of an answer; NotFound where there is no such run."""
        if rating is None and correct_route is None and not comment:
            raise InvalidInput("rating", "give a rating, a correct_route or a comment")
        route = correct_route.value if correct_route else ""
        if not await self._parts.journal.add_feedback(tenant, request_id, rating, route, comment):
            raise NotFound(f"no run {request_id!r}")


def body_hash(question: Question) -> str:
    """SHA-256 over everything of a request that changes its answer; 64 hex digits."""
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
    ]
    return hashlib.sha256(json.dumps(body).encode("utf-8", "replace")).hexdigest()
