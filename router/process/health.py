"""What works and what does not: one probe a dependency, their state as metrics and as gRPC health."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from grpc_health.v1 import health_pb2

from standard.domain.errors import Overloaded, PointsmanError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from grpc_health.v1.health import aio as health_aio

    from router.telemetry.metrics import Metrics

INTERVAL_SECONDS = 5.0
PROBE_SECONDS = 3.0
_log = structlog.get_logger("pointsman.health")


@dataclass(frozen=True, slots=True)
class Probe:
    """How to ask a dependency for a sign of life; raises when there is none.

    Without an `essential` dependency nothing useful can be done and the server is not serving; without another one the
    gateway degrades and says so in its answers.
    """

    ask: Callable[[], Awaitable[object]]
    essential: bool = False


class Health:
    """Follows the dependencies and tells gRPC's health service and the metrics.

    Health service names: '' and `pointsman.v1.GatewayService` for the whole, and each dependency's own name.
    """

    def __init__(self, probes: Mapping[str, Probe], servicer: health_aio.HealthServicer, metrics: Metrics) -> None:
        self._probes = probes
        self._servicer = servicer
        self._metrics = metrics
        self._up: dict[str, bool] = {}

    @property
    def state(self) -> Mapping[str, bool]:
        """The last known state of each dependency."""
        return dict(self._up)

    @property
    def servicer(self) -> health_aio.HealthServicer:
        """What gRPC's health service is served by."""
        return self._servicer

    @property
    def serving(self) -> bool:
        """Whether every essential dependency was there when it was last asked."""
        return all(self._up.get(name, False) for name, probe in self._probes.items() if probe.essential)

    async def follow(self) -> None:
        """Check every few seconds until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def check(self) -> None:
        """Ask every dependency at once and publish what they said."""
        async with asyncio.TaskGroup() as group:
            asked = {name: group.create_task(self._ask(name, probe)) for name, probe in self._probes.items()}
        for name, task in asked.items():
            up = task.result()
            if self._up.get(name) is not up:
                log = _log.info if up else _log.warning
                log("dependency is up" if up else "dependency is down", dependency=name)
            self._up[name] = up
            self._metrics.dependency_up.labels(name).set(up)
            await self._servicer.set(name, _status(up=up))
        for name in ("", "pointsman.v1.GatewayService", "pointsman.v1.CorpusService"):
            await self._servicer.set(name, _status(up=self.serving))

    async def _ask(self, name: str, probe: Probe) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await probe.ask()
        except Overloaded:
            return True  # it says so itself: busy is not away, and an idle instance more would not help
        except (PointsmanError, TimeoutError, OSError) as error:
            _log.debug("probe failed", dependency=name, error=str(error))
            return False
        except Exception:  # noqa: BLE001 - whatever a probe meets, the dependency is down and the server stays up
            _log.exception("probe failed", dependency=name)
            return False
        return True


def _status(*, up: bool) -> health_pb2.HealthCheckResponse.ServingStatus:
    return health_pb2.HealthCheckResponse.SERVING if up else health_pb2.HealthCheckResponse.NOT_SERVING
