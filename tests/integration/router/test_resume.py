"""Runs outlive the call, the reader and the process that began them."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import psycopg
import pytest
from pointsman.client import Pointsman, new_request_id, question
from pointsman.v1 import admin_pb2, gateway_pb2

from standard.domain.errors import NotFound
from standard.domain.passage import Scope
from standard.domain.question import Question, Route
from standard.domain.text import UntrustedText
from tests.integration.agentic.test_decide import reply
from tests.integration.router.conftest import fill, running, settings_for
from tests.support.model_server import Hang, ModelServer, Recorded, Reply
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    from tests.integration.router.conftest import Running

WHO = "Who signs for the pump?"
SEARCH = reply(
    0.5, "search", missing=["her name"], relevant=["S1", "S2"], query="name of the dockmaster of Alder Wharf"
)
ENOUGH = reply(1.0, "answer", relevant=["S1", "S2"])
ASK = reply(0.3, "ask", question="Which pump do you mean?", options=["the bilge pump", "the fire pump"])
ANSWER = Reply("The dockmaster signs for it [S1].")


def agentic(request_id: str) -> gateway_pb2.AnswerRequest:
    return question(WHO, route=gateway_pb2.ROUTE_AGENTIC, request_id=request_id, top_k=2)


@asynccontextmanager
async def replicas(
    model: ModelServer, database_url: str, folder: Path, *, lease: float = 30.0, count: int = 2
) -> AsyncIterator[list[Running]]:
    """Gateways that share nothing but the database and the model; the corpus is filled."""
    llm = {"base_url": model.base_url, "model": "m", "retries": 0}
    settings = settings_for(database_url, folder, llm=llm, journal={"lease_seconds": lease})
    async with running(settings) as first:
        await fill(first.client)
        if count == 1:
            yield [first]
            return
        async with running(settings) as second:
            yield [first, second]


async def state_of(served: Running, request_id: str) -> str:
    return (await served.client.admin.GetTrace(admin_pb2.GetTraceRequest(request_id=request_id))).state


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def last(events: AsyncIterator[gateway_pb2.Event]) -> gateway_pb2.Event:
    return [event async for event in events][-1]


def let_leases_run_out(database_url: str) -> None:
    """What the clock does to the runs of a process that died."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update run set lease_until = now() - interval '1 second' where lease_until is not null")


def count(database_url: str, what: str) -> int:
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute(f"select count(*) from {what}".encode()).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_clarification_continues_a_run_in_another_process(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    async with (
        ModelServer([ASK, ENOUGH, ANSWER]) as model,
        replicas(model, database_url, tmp_path) as (here, there),
    ):
        asked = [event async for event in here.client.stream(agentic(request_id))]
        first = asked[-1].completed
        assert first.outcome == gateway_pb2.OUTCOME_NEEDS_CLARIFICATION
        assert (first.clarification, first.answer) == ("Which pump do you mean?", "Which pump do you mean?")
        assert await state_of(there, request_id) == "waiting"
        # Until there is a reply, the same question is asked back from the journal.
        assert await there.client.answer(agentic(request_id)) == first
        assert len(model.requests) == 1

        resumed = there.client.resume(request_id, after_sequence=asked[-1].sequence, reply="the bilge pump")
        answered = [event async for event in resumed]
        assert answered[0].sequence == asked[-1].sequence + 1
        final = answered[-1].completed
        assert (final.outcome, final.answer) == (gateway_pb2.OUTCOME_ANSWERED, "The dockmaster signs for it.")
        assert final.decision == first.decision
        assert final.usage.llm_calls == 3
        assert "the bilge pump" in model.requests[1].text("user")
        assert await state_of(here, request_id) == "done"
        assert count(database_url, "checkpoints") == 0

        # The same reply again is answered from the journal; another one comes too late.
        again = [event async for event in here.client.resume(request_id, reply="the bilge pump")]
        assert again[-1].completed == final
        assert [event.sequence for event in again] == list(range(1, answered[-1].sequence + 1))
        assert await code_of(last(here.client.resume(request_id, reply="no, the fire pump"))) is (
            grpc.StatusCode.FAILED_PRECONDITION
        )
        assert await here.client.answer(agentic(request_id)) == final
        assert len(model.requests) == 3


async def test_a_reply_that_was_cut_off_can_be_given_again(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    async with (
        ModelServer([ASK, Hang(), ENOUGH, ANSWER]) as model,
        replicas(model, database_url, tmp_path) as (here, there),
    ):
        await here.client.answer(agentic(request_id))
        giving = asyncio.create_task(last(here.client.resume(request_id, reply="the bilge pump")))
        await until(lambda: len(model.requests) == 2)
        giving.cancel()
        await until(lambda: not here.metric("pointsman_inflight_requests"))
        events = [event async for event in there.client.resume(request_id, reply="the bilge pump")]
        assert events[-1].completed.answer == "The dockmaster signs for it."
        assert "the bilge pump" in model.requests[2].text("user")


async def test_without_text_in_the_journal_a_run_cannot_wait(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    async with ModelServer([ASK]) as model:
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        settings = settings_for(database_url, tmp_path, llm=llm, journal={"questions": "hash"})
        async with running(settings) as served:
            await fill(served.client)
            answer = await served.client.answer(agentic(request_id))
            assert answer.outcome == gateway_pb2.OUTCOME_NEEDS_CLARIFICATION
            assert await state_of(served, request_id) == "done"
            assert count(database_url, "checkpoints") == 0
            assert await code_of(last(served.client.resume(request_id, reply="the bilge pump"))) is (
                grpc.StatusCode.FAILED_PRECONDITION
            )


async def test_a_run_whose_process_died_goes_on_from_its_checkpoint(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    async with (
        ModelServer([SEARCH, Hang(), ENOUGH, ANSWER]) as model,
        replicas(model, database_url, tmp_path) as (dead, heir),
    ):
        lost = asyncio.create_task(code_of(dead.client.answer(agentic(request_id), timeout_seconds=20)))
        await until(lambda: len(model.requests) == 2)
        let_leases_run_out(database_url)
        events = [event async for event in heir.client.stream(agentic(request_id))]
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert [event.query.step for event in events if event.HasField("query")] == [1, 2]
        assert sum(event.HasField("decision") for event in events) == 1
        answer = events[-1].completed
        assert (answer.answer, answer.steps) == ("The dockmaster signs for it.", 2)
        assert len(model.requests) == 4  # the first judgement was not paid twice

        # The process that was thought dead writes nothing into what is another's by now.
        lost.cancel()
        await until(lambda: not dead.metric("pointsman_inflight_requests"))
        assert await state_of(heir, request_id) == "done"
        assert await dead.client.answer(agentic(request_id)) == answer


async def test_a_server_that_stops_leaves_its_runs_to_the_next(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    async with ModelServer([SEARCH, Hang(), ENOUGH, ANSWER]) as model:
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        server = {"port": 0, "metrics_port": 0, "grace_seconds": 0.2}
        settings = settings_for(database_url, tmp_path, llm=llm, server=server)
        async with contextlib.AsyncExitStack() as stopping:
            served = await stopping.enter_async_context(running(settings))
            await fill(served.client)
            async with Pointsman(served.target) as client:
                lost = asyncio.create_task(code_of(client.answer(agentic(request_id))))
                await until(lambda: len(model.requests) == 2)
                await stopping.aclose()
                assert await lost is grpc.StatusCode.UNAVAILABLE
        async with running(settings) as heir:
            answer = await heir.client.answer(agentic(request_id))
        assert (answer.answer, answer.steps) == ("The dockmaster signs for it.", 2)
        assert len(model.requests) == 4


async def test_two_replies_at_once_do_not_both_count(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    async with (
        ModelServer([ASK, Reply(ENOUGH.text, delay=0.5), ANSWER]) as model,
        replicas(model, database_url, tmp_path) as (here, there),
    ):
        await here.client.answer(agentic(request_id))
        replies = await asyncio.gather(
            last(here.client.resume(request_id, reply="the bilge pump")),
            last(there.client.resume(request_id, reply="the fire pump")),
            return_exceptions=True,
        )
        refused = [each for each in replies if isinstance(each, grpc.aio.AioRpcError)]
        assert [error.code() for error in refused] == [grpc.StatusCode.FAILED_PRECONDITION]
        assert len(model.requests) == 3


async def test_a_deserted_run_is_taken_over_by_those_who_reattach(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    async with (
        ModelServer([Hang(), ENOUGH, ANSWER]) as model,
        replicas(model, database_url, tmp_path) as (dead, heir),
    ):
        lost = asyncio.create_task(code_of(dead.client.answer(agentic(request_id), timeout_seconds=20)))
        await until(lambda: model.requests)
        let_leases_run_out(database_url)
        events = [event async for event in heir.client.resume(request_id)]
        assert events[-1].completed.answer == "The dockmaster signs for it."
        lost.cancel()


async def test_a_run_of_another_process_is_awaited_not_refused(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    slow = Reply(ENOUGH.text, delay=2.5)
    async with (
        ModelServer([slow, ANSWER]) as model,
        # Shorter than the work takes: the run is kept only because its lease is renewed.
        replicas(model, database_url, tmp_path, lease=1.0) as (here, there),
    ):
        working = asyncio.create_task(here.client.answer(agentic(request_id)))
        await until(lambda: model.requests)
        asked, attached = await asyncio.gather(
            there.client.answer(agentic(request_id)), last(there.client.resume(request_id))
        )
        assert asked == attached.completed == await working
        assert len(model.requests) == 2
        assert there.metric("pointsman_routing_seconds_count") == 0


async def test_waiting_for_another_process_ends_with_the_deadline(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    async with ModelServer([Hang()]) as model, replicas(model, database_url, tmp_path) as (here, there):
        working = asyncio.create_task(code_of(here.client.answer(agentic(request_id), timeout_seconds=20)))
        await until(lambda: model.requests)
        assert await code_of(there.client.answer(agentic(request_id), timeout_seconds=1)) is (
            grpc.StatusCode.DEADLINE_EXCEEDED
        )
        await until(lambda: not there.metric("pointsman_inflight_requests"))
        assert await state_of(there, request_id) == "running"
        working.cancel()


async def test_a_run_that_failed_begins_again_under_its_id(gateway: Running) -> None:
    request = question("Where is the spare bilge pump kept?", collection="later", request_id=new_request_id())
    assert await code_of(gateway.client.answer(request)) is grpc.StatusCode.NOT_FOUND
    assert await state_of(gateway, request.request_id) == "failed"
    await gateway.client.ingest([], collection="later")
    answer = await gateway.client.answer(request)
    assert answer.outcome == gateway_pb2.OUTCOME_UNANSWERABLE
    assert await gateway.client.answer(request) == answer


async def test_whoever_asks_right_after_the_last_reader_left_is_answered(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()
    async with (
        ModelServer([Hang(), ENOUGH, ANSWER]) as model,
        replicas(model, database_url, tmp_path, count=1) as (served,),
    ):
        leaving = asyncio.create_task(served.client.answer(agentic(request_id)))
        await until(lambda: model.requests)
        leaving.cancel()
        answer = await served.client.answer(agentic(request_id))
        assert answer.answer == "The dockmaster signs for it."


async def test_a_run_is_invisible_to_callers_without_its_groups(gateway: Running) -> None:
    service = gateway.application.gateway
    asked = Question(
        UntrustedText("Where is the spare bilge pump kept?"),
        Scope(groups=frozenset({"crew"})),
        route=Route.STANDARD,
        request_id="r1",
    )
    await service.answer(asked)
    with pytest.raises(NotFound):
        [event async for event in service.resume(Scope(), "r1", 0, reply="", deadline=None)]
    crew = Scope(groups=frozenset({"crew", "office"}))
    assert [event async for event in service.resume(crew, "r1", 0, reply="", deadline=None)]


async def test_a_run_that_is_erased_while_it_works_leaves_nothing(database_url: str, tmp_path: Path) -> None:
    request_id = new_request_id()

    async def erasing(request: Recorded) -> Reply:
        if request.number == 0:
            await served.client.admin.EraseSubject(admin_pb2.EraseSubjectRequest(subject=request_id))
            return SEARCH
        return ENOUGH if request.number == 1 else ANSWER

    async with ModelServer(erasing) as model, replicas(model, database_url, tmp_path, count=1) as (served,):
        assert await code_of(served.client.answer(agentic(request_id))) is grpc.StatusCode.NOT_FOUND
        for table in ("run", "run_events", "checkpoints", "checkpoint_writes", "checkpoint_blobs"):
            assert count(database_url, table) == 0, table
