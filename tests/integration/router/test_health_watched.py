"""Health can be watched: load balancers and gRPC's own client-side checks wait for news instead of asking."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

if TYPE_CHECKING:
    from tests.integration.router.conftest import Running

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("service", ["", "pointsman.v1.GatewayService", "database"])
async def test_those_who_watch_are_told_of_every_change(gateway: Running, service: str) -> None:
    async with grpc.aio.insecure_channel(gateway.target) as channel, asyncio.timeout(20):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
        assert (await watch.read()).status == SERVING
        for status in (NOT_SERVING, SERVING):
            await gateway.application.health.servicer.set(service, status)
            assert (await watch.read()).status == status
        watch.cancel()
    assert (await gateway.client.answer("Where is the spare bilge pump kept?")).answer
