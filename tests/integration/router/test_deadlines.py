"""A call's deadline reaches what it waits for: the statement in the database, and the language model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import psycopg
import pytest
from pointsman.client import question
from pointsman.v1 import gateway_pb2

from tests.integration.router.conftest import fill, running, settings_for
from tests.support.model_server import Hang, ModelServer, always
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

WHERE = "Where is the spare bilge pump kept?"
SECONDS = 1.0
_WAITING = "select count(*) from pg_stat_activity where application_name = 'pointsman' and wait_event_type = 'Lock'"


async def test_a_statement_ends_with_the_deadline_of_the_call_that_waits_for_it(
    database_url: str, tmp_path: Path
) -> None:
    loop = asyncio.get_running_loop()
    async with running(settings_for(database_url, tmp_path)) as served:
        await fill(served.client)
        async with (
            await psycopg.AsyncConnection.connect(database_url) as other,
            await psycopg.AsyncConnection.connect(database_url, autocommit=True) as onlooker,
        ):

            async def waiting() -> int:
                row = await (await onlooker.execute(_WAITING)).fetchone()
                return int(row[0]) if row is not None else 0

            await other.execute("lock table chunk in access exclusive mode")
            began = loop.time()
            asking = asyncio.create_task(call(served.client.answer(question(WHERE), timeout_seconds=SECONDS)))
            async with asyncio.timeout(SECONDS):
                while not await waiting():  # noqa: ASYNC110 - the event is in another process
                    await asyncio.sleep(0.01)
            assert await asking is grpc.StatusCode.DEADLINE_EXCEEDED
            assert loop.time() - began < SECONDS + 0.2
            async with asyncio.timeout(0.5):  # the statement's own limit is 30 s
                while await waiting():  # noqa: ASYNC110 - the event is in another process
                    await asyncio.sleep(0.01)
        assert (await served.client.answer(WHERE)).answer


async def test_the_model_is_left_in_time_for_an_answer_without_it(database_url: str, tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with ModelServer(always(Hang())) as model:
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        async with running(settings_for(database_url, tmp_path, llm=llm)) as served:
            await fill(served.client)
            began = loop.time()
            request = question(WHERE, route=gateway_pb2.ROUTE_STANDARD)
            answer = await served.client.answer(request, timeout_seconds=3.0)
            assert answer.answer_source == gateway_pb2.ANSWER_SOURCE_EXTRACTIVE
            assert loop.time() - began < 3.0
            await until(lambda: model.requests[0].client_gone, seconds=0.5)


async def call(asked: Awaitable[object]) -> grpc.StatusCode:
    """The code that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked
    return caught.value.code()
