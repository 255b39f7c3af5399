"""Limits of tenants over real gRPC and HTTP, with a real model server, and over a real Redis."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from pointsman.client import question
from pointsman.v1 import gateway_pb2

from router.access.counts import AGAIN_SECONDS, STORE_SECONDS
from router.access.limits import TenantLimits
from router.settings import BadSettings, LimitSettings, TenantLimitSettings
from router.telemetry.metrics import Metrics
from standard.domain.answer import Usage
from standard.domain.errors import Overloaded, Unavailable
from tests.integration.tenants.conftest import PUMP, WHERE, guarded, settings_for
from tests.support.model_server import Hang, ModelServer, Reply, always
from tests.support.redis_server import redis_server

if TYPE_CHECKING:
    from pathlib import Path

SAID = "It is in the shed at Alder Wharf [S1]."


def limits(redis_url: str = "", **values: float) -> TenantLimits:
    return TenantLimits(LimitSettings.model_validate(values | ({"redis_url": redis_url} if redis_url else {})), METRICS)


METRICS = Metrics()


def retry_seconds(error: grpc.aio.AioRpcError) -> float:
    """The delay that a refusal's RetryInfo names."""
    status = rpc_status.from_call(error)
    assert status is not None
    for detail in status.details:
        info = error_details_pb2.RetryInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
            return float(info.retry_delay.ToTimedelta().total_seconds())
    pytest.fail("the refusal holds no RetryInfo")


async def test_calls_beyond_those_of_a_minute_are_refused_with_advice(database_url: str, tmp_path: Path) -> None:
    section = {"requests_per_minute": 1000, "tenants": {"small": {"requests_per_minute": 3}}}
    async with guarded(settings_for(database_url, tmp_path, limits=section)) as gateway:
        await gateway.fill(await gateway.key("large", role="admin"), "default", PUMP)
        small, large = await gateway.key("small"), await gateway.key("large")
        async with gateway.client(small) as client, gateway.client(large) as other:
            for _ in range(3):
                await client.classify(WHERE)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.classify(WHERE)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert 0.0 < retry_seconds(caught.value) <= 60.0
            refused = await gateway.post("/v1/chat/completions", {"model": "pointsman", "messages": []}, small)
            assert refused.status_code == 429
            assert refused.json()["error"]["type"] == "rate_limit_error"
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            for _ in range(5):
                await other.classify(WHERE)
        assert gateway.shed("tenant_requests") == 2


async def test_calls_at_once_are_bounded_and_come_free_again(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(always(Hang())) as model:
        llm = {"base_url": model.base_url, "model": "m", "retries": 0}
        settings = settings_for(database_url, tmp_path, llm=llm, limits={"concurrent": 1})
        async with guarded(settings) as gateway:
            await gateway.fill(await gateway.key("acme", role="admin"), "default", PUMP)
            key = await gateway.key("acme")
            async with gateway.client(key) as client:
                request = question(WHERE, route=gateway_pb2.ROUTE_STANDARD)
                hanging = asyncio.ensure_future(client.answer(request, timeout_seconds=30.0))
                await model.arrived(1)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await client.classify(WHERE)
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert retry_seconds(caught.value) == 1.0
                refused = await gateway.post("/query", {"question": WHERE}, key)
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
                hanging.cancel()
                async with asyncio.timeout(10):
                    while (await gateway.http.get("/v1/models", headers={"x-api-key": key})).status_code == 429:  # noqa: ASYNC110 - the server tells nobody
                        await asyncio.sleep(0.05)
                await client.classify(WHERE)
            assert gateway.shed("tenant_concurrent") >= 2


async def test_money_of_the_day_is_charged_after_the_answer(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(always(Reply(SAID))) as model:
        llm = {"base_url": model.base_url, "model": "m", "prices": {"m": (1000.0, 100.0, 2000.0)}}
        settings = settings_for(database_url, tmp_path, llm=llm, limits={"usd_per_day": 0.01})
        async with guarded(settings) as gateway:
            await gateway.fill(await gateway.key("acme", role="admin"), "default", PUMP)
            async with gateway.client(await gateway.key("acme")) as client:
                request = question(WHERE, route=gateway_pb2.ROUTE_STANDARD, request_id="dear")
                assert (await client.answer(request)).usage.cost_usd > 0.01
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await client.answer(WHERE)
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert 86_000 < retry_seconds(caught.value) <= 86_400
                await client.classify(WHERE)  # costs nothing
            refused = await gateway.post("/query", {"question": WHERE}, await gateway.key("acme"))
            assert (refused.status_code, refused.json()["error"]["reason"]) == (429, "OVERLOADED")
            assert gateway.shed("tenant_money") == 2


async def test_tokens_of_a_run_that_failed_are_charged_as_well(database_url: str, tmp_path: Path) -> None:
    async with ModelServer(always(Reply(SAID, token_delay=0.3))) as model:
        llm = {"base_url": model.base_url, "model": "m"}
        settings = settings_for(database_url, tmp_path, llm=llm, limits={"tokens_per_day": 20})
        async with guarded(settings) as gateway:
            await gateway.fill(await gateway.key("acme", role="admin"), "default", PUMP)
            async with gateway.client(await gateway.key("acme")) as client:
                events = client.stream(question(WHERE, route=gateway_pb2.ROUTE_STANDARD))
                async for event in events:
                    if event.WhichOneof("body") == "token":
                        break
                await events.aclose()  # type: ignore[attr-defined]
                async with asyncio.timeout(10):
                    while not gateway.shed("tenant_tokens"):
                        try:
                            await client.answer(question(WHERE, dry_run=True))
                        except grpc.aio.AioRpcError as error:
                            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # noqa: PT017
                        await asyncio.sleep(0.05)


async def test_a_tenants_section_leaves_the_other_defaults_in_force() -> None:
    settings = LimitSettings(concurrent=4, usd_per_day=1.0, tenants={"acme": TenantLimitSettings(concurrent=9)})
    assert (settings.of("acme").concurrent, settings.of("acme").usd_per_day) == (9, 1.0)
    assert (settings.of("bolt").concurrent, settings.of("bolt").usd_per_day) == (4, 1.0)


async def test_nothing_is_allowed_where_the_money_of_a_day_is_nothing() -> None:
    with pytest.raises(Overloaded, match="money"):
        await limits(usd_per_day=0.0).check_spending("acme")


async def called(here: TenantLimits, tenant: str = "acme") -> None:
    async with here.call(tenant):
        pass


async def test_replicas_share_their_counts_in_redis(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as redis:
        here = limits(redis.url, requests_per_minute=3, tokens_per_day=100)
        there = limits(redis.url, requests_per_minute=3, tokens_per_day=100)
        for each in (here, there, here):
            await called(each)
        with pytest.raises(Overloaded, match="3 calls a minute") as caught:
            await called(there)
        assert caught.value.retry_after_seconds is not None
        assert 0.0 < caught.value.retry_after_seconds <= 60.0
        await called(there, "bolt")
        await here.charge("acme", Usage(input_tokens=90, output_tokens=20))
        with pytest.raises(Overloaded, match="tokens of the day"):
            await there.check_spending("acme")
        await here.close()
        await there.close()


@pytest.mark.parametrize("fault", ["killed", "paused"])
async def test_without_redis_each_holds_to_what_it_counted_itself(tmp_path: Path, fault: str) -> None:
    loop = asyncio.get_running_loop()
    async with redis_server(tmp_path) as redis:
        here = limits(redis.url, requests_per_minute=3, tokens_per_day=100)
        there = limits(redis.url, requests_per_minute=3, tokens_per_day=100)
        for each in (here, here, there):
            await called(each)
        await here.charge("acme", Usage(input_tokens=60))
        await here.counts.probe()
        await (redis.kill() if fault == "killed" else asyncio.to_thread(redis.pause))
        began = loop.time()
        await called(here)  # its third
        with pytest.raises(Overloaded, match="3 calls a minute"):
            await called(here)
        for _ in range(2):
            await called(there)  # its second and third
        with pytest.raises(Overloaded, match="3 calls a minute"):
            await called(there)
        await here.check_spending("acme")
        await here.charge("acme", Usage(input_tokens=50))
        with pytest.raises(Overloaded, match="tokens of the day"):
            await here.check_spending("acme")
        await there.check_spending("acme")  # of what the other one charged it knows nothing
        assert loop.time() - began < 8 * STORE_SECONDS  # a wait or two each, and not one a call: that would be ten
        with pytest.raises(Unavailable, match="redis"):
            await here.counts.probe()
        await here.close()
        await there.close()


@pytest.mark.parametrize("fault", ["killed", "paused"])
async def test_redis_counts_again_once_it_is_back_and_learns_what_was_charged_meanwhile(
    tmp_path: Path, fault: str
) -> None:
    async with redis_server(tmp_path) as redis:
        here = limits(redis.url, requests_per_minute=1000, tokens_per_day=100)
        there = limits(redis.url, requests_per_minute=1000, tokens_per_day=100)
        await (redis.kill() if fault == "killed" else asyncio.to_thread(redis.pause))
        for tokens in (30, 80):
            await here.charge("acme", Usage(input_tokens=tokens))
        await (redis.start() if fault == "killed" else asyncio.to_thread(redis.resume))
        await asyncio.sleep(AGAIN_SECONDS)
        await there.check_spending("acme")
        with pytest.raises(Overloaded, match="tokens of the day"):
            await here.check_spending("acme")
        with pytest.raises(Overloaded, match="tokens of the day"):
            await there.check_spending("acme")
        await here.counts.probe()
        await here.close()
        await there.close()


async def test_a_caller_who_leaves_while_debts_are_brought_to_redis_leaves_them_owed(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as redis:
        here = limits(redis.url, tokens_per_day=100)
        there = limits(redis.url, tokens_per_day=100)
        redis.pause()
        await here.charge("acme", Usage(input_tokens=110))
        await asyncio.sleep(AGAIN_SECONDS)
        asking = asyncio.create_task(here.check_spending("acme"))
        await asyncio.sleep(STORE_SECONDS / 5)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        redis.resume()
        await asyncio.sleep(AGAIN_SECONDS)
        with pytest.raises(Overloaded, match="tokens of the day"):
            await here.check_spending("acme")
        with pytest.raises(Overloaded, match="tokens of the day"):
            await there.check_spending("acme")
        await here.close()
        await there.close()


async def test_calls_that_wait_for_a_redis_that_hangs_wait_together(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with redis_server(tmp_path) as redis:
        here = limits(redis.url, requests_per_minute=1000)
        await asyncio.gather(*(called(here) for _ in range(100)))
        redis.pause()
        began = loop.time()
        await asyncio.gather(*(called(here) for _ in range(300)))
        assert loop.time() - began < 20 * STORE_SECONDS, "one after another it would be 300 times that"
        await here.close()


@pytest.mark.parametrize("url", ["http://cache", "redis", "memcached://x"])
def test_a_store_that_is_no_redis_is_refused(url: str) -> None:
    with pytest.raises(BadSettings, match="redis_url"):
        limits(url)


@pytest.mark.parametrize("shared", [False, True], ids=["in memory", "in redis"])
async def test_several_calls_are_taken_together_or_not_at_all(tmp_path: Path, shared: bool) -> None:
    async with redis_server(tmp_path) as redis:
        here = limits(redis.url if shared else "", requests_per_minute=10)
        try:
            await here.take("acme", 4)
            for _ in range(3):
                with pytest.raises(Overloaded, match="less than 7 left of its 10 calls a minute") as caught:
                    await here.take("acme", 7)
            assert 0.0 < (caught.value.retry_after_seconds or 0.0) <= 120.0
            await here.take("acme", 6)
            with pytest.raises(Overloaded, match="used up"):
                await here.take("acme", 1)
        finally:
            await here.close()
