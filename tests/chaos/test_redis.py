"""The Redis that limits are counted in goes: answers go on, limits hold by own counts, and it is found again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
import pytest_asyncio

from router.access.counts import STORE_SECONDS
from tests.chaos.conftest import GENERATED
from tests.chaos.gateway_process import WHERE, Served, code_of, gateway
from tests.chaos.survival import SERVING, survives
from tests.support.model_server import always
from tests.support.redis_server import RedisServer, redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]
UP = 'pointsman_dependency_up{dependency="redis"}'
ANSWER_SECONDS = 2.0
"""An answer with one wait for Redis in it, on a machine that has other work."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def redis(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedisServer]:
    """A server of its own."""
    async with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def limited(
    tmp_path_factory: pytest.TempPathFactory, model: ModelServer, redis: RedisServer
) -> AsyncIterator[Served]:
    """A gateway whose limits are counted in Redis; they are wide."""
    model.script = always(GENERATED)
    wide = {
        "LIMITS__REDIS_URL": redis.url,
        "LIMITS__REQUESTS_PER_MINUTE": "1000000",
        "LIMITS__TOKENS_PER_DAY": "1000000000",
        "LIMITS__USD_PER_DAY": "1000000",
    }
    async with gateway(tmp_path_factory.mktemp("limited"), model=model, settings=wide) as running:
        for _ in range(8):
            await running.client.answer(WHERE)
        yield running


async def is_up(served: Served, wanted: float, *, within_seconds: float) -> None:
    """Wait until the metric says so."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_seconds
    while (await served.metrics())[UP] != wanted:
        assert loop.time() < until
        await asyncio.sleep(0.2)


async def slowest(served: Served, count: int) -> float:
    """Ask one question after another, all must be answered; the longest that one took, in seconds."""
    loop = asyncio.get_running_loop()
    longest = 0.0
    for _ in range(count):
        began = loop.time()
        assert await code_of(served.client.answer(WHERE, timeout_seconds=10)) is grpc.StatusCode.OK
        longest = max(longest, loop.time() - began)
    return longest


@pytest.mark.parametrize("fault", ["killed", "paused"])
async def test_answers_go_on_without_redis_and_it_counts_again_once_it_is_back(
    limited: Served, redis: RedisServer, fault: str
) -> None:
    await is_up(limited, 1.0, within_seconds=10)
    async with survives(limited, within_seconds=5, sockets=20) as fault_now:
        asking = asyncio.create_task(fault_now.ask(40, seconds=10))
        await asyncio.sleep(0.02)
        await (redis.kill() if fault == "killed" else asyncio.to_thread(redis.pause))
        try:
            assert await asking == {grpc.StatusCode.OK}
            assert await slowest(limited, 10) < ANSWER_SECONDS
            assert await fault_now.ask(40) == {grpc.StatusCode.OK}
            await fault_now.ingest(2)
            await is_up(limited, 0.0, within_seconds=10)
            assert await limited.health("redis") != SERVING
            assert await limited.health() == SERVING
        finally:
            await (redis.start() if fault == "killed" else asyncio.to_thread(redis.resume))
        await is_up(limited, 1.0, within_seconds=8)
    assert "limits hold by what each process counts itself" in limited.log.read_text()


async def test_a_redis_that_comes_and_goes_costs_no_answer(limited: Served, redis: RedisServer) -> None:
    async with survives(limited, within_seconds=5, sockets=20) as fault:
        stop = asyncio.Event()

        async def flicker() -> None:
            while not stop.is_set():
                redis.pause()
                await asyncio.sleep(1.5 * STORE_SECONDS)
                redis.resume()
                await asyncio.sleep(0.2)

        async with asyncio.TaskGroup() as group:
            group.create_task(flicker())
            for _ in range(10):
                assert await fault.ask(8, seconds=10) == {grpc.StatusCode.OK}
                await asyncio.sleep(0.3)
            stop.set()
    await is_up(limited, 1.0, within_seconds=8)
