"""Searches over gRPC are bounded with the questions: they hold a place, wait for one a while, and are refused."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from pointsman.v1 import corpus_pb2, corpus_pb2_grpc

from tests.integration.router.conftest import fill, running, settings_for
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

SEARCH = corpus_pb2.SearchPassagesRequest(query="Where is the spare bilge pump kept?")
TIGHT = {"port": 0, "metrics_port": 0, "max_inflight": 1, "max_queued": 1, "queue_timeout_seconds": 0.5}


async def test_a_search_without_a_place_is_refused_with_advice_when_to_come_back(
    database_url: str, tmp_path: Path
) -> None:
    async with running(settings_for(database_url, tmp_path, server=TIGHT)) as served:
        await fill(served.client)
        async with grpc.aio.insecure_channel(served.target, options=[("grpc.enable_retries", 0)]) as channel:
            search = corpus_pb2_grpc.CorpusServiceStub(channel).SearchPassages
            async with AsyncExitStack() as held:
                await held.enter_async_context(served.application.gateway.place())
                results = await asyncio.gather(*(search(SEARCH, timeout=10) for _ in range(4)), return_exceptions=True)
                for refused in results:
                    assert isinstance(refused, grpc.aio.AioRpcError)
                    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    assert 0.0 < advised(refused) <= 5.0
                assert served.metric("pointsman_shed_requests_total", reason="queue_timeout") == 1
                assert served.metric("pointsman_shed_requests_total", reason="queue_full") == 3
                waiting = asyncio.ensure_future(search(SEARCH, timeout=10))
                await asyncio.sleep(0.1)
                assert not waiting.done()
            assert (await waiting).passages[0].document_id == "pump"
        await until(lambda: served.metric("pointsman_inflight_requests") == 0)


def advised(error: grpc.aio.AioRpcError) -> float:
    """The seconds that a refusal's RetryInfo names."""
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return float(info.retry_delay.ToTimedelta().total_seconds())
    pytest.fail("the refusal holds no RetryInfo")
