"""PostgreSQL dies, stops answering, has no room, is slow or starts anew: typed errors, and back without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2
from pointsman.client import new_request_id, question

from standard.database.embedded import start_embedded
from tests.chaos.gateway_process import TYPED, WHERE, Served, code_of, stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.asyncio(loop_scope="session")
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture(scope="session")
def database(served: Served) -> Iterator[str]:
    """The URL of the gateway's embedded database, joined as any other user of it would."""
    joined = start_embedded(served.data)
    try:
        yield joined.url
    finally:
        joined.close()


async def becomes(served: Served, status: int, *, within_seconds: float = 20.0) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + within_seconds
    while await served.health() != status:
        assert loop.time() < until
        await asyncio.sleep(0.2)


async def asked(served: Served, count: int, *, seconds: float = 3.0) -> list[grpc.StatusCode]:
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(code_of(served.client.answer(WHERE, timeout_seconds=seconds))) for _ in range(count)]
    return [call.result() for call in calls]


@contextlib.asynccontextmanager
async def all_connections(database: str) -> AsyncIterator[None]:
    """Take every connection that the server has left."""
    async with contextlib.AsyncExitStack() as taken:
        refused = False
        while not refused:
            try:
                await taken.enter_async_context(await psycopg.AsyncConnection.connect(database))
            except psycopg.OperationalError:
                refused = True
        yield


@contextlib.asynccontextmanager
async def nothing_is_lost(served: Served) -> AsyncIterator[None]:
    """An answer given before is given again, word for word, after."""
    request = question(WHERE, request_id=new_request_id())
    answer = await served.client.answer(request)
    yield
    assert await served.client.answer(request) == answer


async def test_a_killed_server_is_started_again_and_answers_are_kept(served: Served) -> None:
    before = await served.footprint()
    async with nothing_is_lost(served):
        os.kill(served.postmaster().pid, signal.SIGKILL)
        codes = await asked(served, 8)
        assert set(codes) <= TYPED | {grpc.StatusCode.OK}
        assert await served.recovers(within_seconds=15) < 15
    await becomes(served, SERVING)
    await served.settles(before)


@pytest.mark.slow
async def test_a_server_that_is_restarted_is_found_again(served: Served) -> None:
    async with nothing_is_lost(served):
        postmaster = served.postmaster()
        postmaster.send_signal(signal.SIGINT)  # fast shutdown, as an administrator would
        assert set(await asked(served, 4)) <= TYPED | {grpc.StatusCode.OK}
        await served.recovers(within_seconds=15)
        assert served.postmaster().pid != postmaster.pid


@pytest.mark.slow
async def test_server_and_keeper_killed_together_are_both_started_again(served: Served) -> None:
    async with nothing_is_lost(served):
        os.kill(int((served.data / "postgres/keeper.lock").read_text()), signal.SIGKILL)
        os.kill(served.postmaster().pid, signal.SIGKILL)
        assert set(await asked(served, 4)) <= TYPED | {grpc.StatusCode.OK}
        await served.recovers(within_seconds=20)


@pytest.mark.slow
async def test_a_server_that_hangs_costs_each_call_its_deadline_and_no_more(served: Served) -> None:
    before = await served.footprint()
    async with nothing_is_lost(served):
        with stopped(served):
            began = asyncio.get_running_loop().time()
            codes = await asked(served, 40, seconds=2.0)
            assert set(codes) <= TYPED
            assert asyncio.get_running_loop().time() - began < 4.0
            await becomes(served, health_pb2.HealthCheckResponse.NOT_SERVING)
        await served.recovers(within_seconds=15)
    await becomes(served, SERVING)
    await served.settles(before, within_seconds=30)


@pytest.mark.slow
async def test_a_server_without_free_connections_is_no_reason_to_stop_serving(served: Served, database: str) -> None:
    before = await served.footprint()
    async with all_connections(database):
        # The gateway's own connections still work, and so does everything it needs them for.
        assert set(await asked(served, 8)) == {grpc.StatusCode.OK}
        await asyncio.sleep(6.0)  # health is asked every five seconds
        assert await served.health() == SERVING
    await served.settles(before)


@pytest.mark.slow
async def test_a_slow_server_makes_slow_answers_and_typed_errors(served: Served) -> None:
    before = await served.footprint()
    async with nothing_is_lost(served):

        async def stutter() -> None:
            while True:
                with stopped(served):
                    await asyncio.sleep(0.09)
                await asyncio.sleep(0.01)

        stuttering = asyncio.create_task(stutter())
        try:
            codes = await asked(served, 16, seconds=6.0)
        finally:
            stuttering.cancel()
            await asyncio.wait([stuttering])
        assert set(codes) <= TYPED | {grpc.StatusCode.OK}
        assert grpc.StatusCode.OK in codes
        await served.recovers(within_seconds=10)
    await served.settles(before)


@pytest.mark.slow
async def test_statements_that_wait_for_a_lock_run_out_of_time(served: Served, database: str) -> None:
    before = await served.footprint()
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("lock table chunk in access exclusive mode")
        codes = await asked(served, 8, seconds=5.0)
        assert set(codes) <= TYPED
    await served.recovers(within_seconds=5)
    await served.settles(before)
