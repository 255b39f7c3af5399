"""Health tells the truth, whatever a probe meets."""

from __future__ import annotations

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from router.process.health import Health, Probe
from router.telemetry.metrics import Metrics
from standard.domain.errors import Overloaded


async def test_a_probe_that_breaks_is_a_dependency_that_is_down() -> None:
    async def broken() -> None:
        raise ValueError("not an error of ours")

    async def fine() -> None:
        return None

    metrics = Metrics()
    servicer = health_aio.HealthServicer()
    health = Health({"database": Probe(fine, essential=True), "embedder": Probe(broken)}, servicer, metrics)
    await health.check()
    assert health.state == {"database": True, "embedder": False}
    assert metrics.registry.get_sample_value("pointsman_dependency_up", {"dependency": "embedder"}) == 0.0
    serving = await servicer.Check(health_pb2.HealthCheckRequest(service=""), None)
    assert serving.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_dependency_that_is_busy_is_not_away() -> None:
    async def busy() -> None:
        raise Overloaded("too many questions wait to be encoded", retry_after_seconds=1.0)

    health = Health({"embedder": Probe(busy, essential=True)}, health_aio.HealthServicer(), Metrics())
    await health.check()
    assert health.serving
