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

from standard.database.embedded import start_embedded
from tests.chaos.gateway_process import TYPED, Served, stopped
from tests.chaos.survival import NOT_SERVING, SERVING, becomes, survives

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="session")
def database(served: Served) -> Iterator[str]:
    """The URL of the gateway's embedded database, joined as any other user of it would."""
    joined = start_embedded(served.data)
    try:
        yield joined.url
    finally:
        joined.close()


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


async def test_a_killed_server_is_started_again_and_what_was_acknowledged_is_kept(served: Served) -> None:
    async with survives(served) as fault:
        arriving = asyncio.create_task(fault.ingest(6))
        await asyncio.sleep(0.1)
        os.kill(served.postmaster().pid, signal.SIGKILL)
        await fault.ask(8)
        await arriving


@pytest.mark.slow
async def test_a_server_that_is_restarted_is_found_again(served: Served) -> None:
    async with survives(served) as fault:
        postmaster = served.postmaster()
        arriving = asyncio.create_task(fault.ingest(6))
        postmaster.send_signal(signal.SIGINT)  # fast shutdown, as an administrator would
        await fault.ask(4)
        await arriving
    assert served.postmaster().pid != postmaster.pid


@pytest.mark.slow
async def test_server_and_keeper_killed_together_are_both_started_again(served: Served) -> None:
    async with survives(served, within_seconds=20) as fault:
        os.kill(int((served.data / "postgres/keeper.lock").read_text()), signal.SIGKILL)
        os.kill(served.postmaster().pid, signal.SIGKILL)
        await fault.ask(4)
        await fault.ingest(2)


@pytest.mark.slow
async def test_a_server_that_hangs_costs_each_call_its_deadline_and_no_more(served: Served) -> None:
    async with survives(served) as fault:
        with stopped(served):
            began = asyncio.get_running_loop().time()
            assert await fault.ask(40, seconds=2.0) <= TYPED
            assert asyncio.get_running_loop().time() - began < 4.0
            await fault.ingest(1, seconds=2.0)
            await becomes(served, NOT_SERVING)


@pytest.mark.slow
async def test_a_server_that_hangs_for_long_under_many_calls_is_found_again(served: Served) -> None:
    async with survives(served) as fault:
        with stopped(served):
            for _ in range(6):  # more than may wait for a connection, and longer than the pool tries
                assert await fault.ask(60, seconds=2.0) <= TYPED
            await asyncio.sleep(45)


@pytest.mark.slow
async def test_a_server_without_free_connections_is_no_reason_to_stop_serving(served: Served, database: str) -> None:
    async with survives(served) as fault, all_connections(database):
        # The gateway's own connections still work, and so does everything it needs them for.
        assert await fault.ask(8) == {grpc.StatusCode.OK}
        await asyncio.sleep(6.0)  # health is asked every five seconds
        assert await served.health() == SERVING


@pytest.mark.slow
async def test_a_slow_server_makes_slow_answers_and_typed_errors(served: Served) -> None:
    async with survives(served) as fault:

        async def stutter() -> None:
            while True:
                with stopped(served):
                    await asyncio.sleep(0.09)
                await asyncio.sleep(0.01)

        stuttering = asyncio.create_task(stutter())
        try:
            assert grpc.StatusCode.OK in await fault.ask(16, seconds=6.0)
            await fault.ingest()
        finally:
            stuttering.cancel()
            await asyncio.wait([stuttering])


@pytest.mark.slow
async def test_statements_that_wait_for_a_lock_run_out_of_time(served: Served, database: str) -> None:
    async with survives(served, within_seconds=5) as fault, await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("lock table chunk in access exclusive mode")
        assert await fault.ask(8, seconds=5.0) <= TYPED
