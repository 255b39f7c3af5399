"""Label children that are kept end with their series."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from router.telemetry.metrics import Metrics
from router.telemetry.tenants import BusiestTenants


def test_a_tenant_that_lost_its_label_begins_at_nought_when_it_has_it_back() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics._busiest = BusiestTenants(labels=1)

    def value(tenant: str) -> float | None:
        return metrics.registry.get_sample_value(
            "pointsman_tenant_requests_total", {"tenant": tenant, "route": "standard"}
        )

    def asked(tenant: str, times: int) -> None:
        for _ in range(times):
            metrics._count_tenant(tenant, "standard")

    asked("first", 2)
    assert value("first") == 2
    asked("second", 8)
    assert value("first") is None
    assert value("second") is not None
    asked("first", 30)
    counted = value("first")
    assert value("second") is None
    assert counted is not None
    assert 0 < counted < 30
