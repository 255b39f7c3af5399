"""What the gateway's registry holds: each metric by its scraped name, with type, labels and bucket bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from router.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Registered:
    """A metric. `samples` are the names that its samples have; `bounds` those of a histogram's buckets."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...]
    samples: tuple[str, ...]
    bounds: tuple[str, ...] = ()


@cache
def registered() -> dict[str, Registered]:
    """Every metric of a fresh registry by its name (counters with _total)."""
    found: dict[str, Registered] = {}
    for value in vars(Metrics(CollectorRegistry())).values():
        if not isinstance(value, (Counter, Gauge, Histogram)):
            continue
        family = next(iter(value.describe()))
        labels = tuple(value._labelnames)
        if isinstance(value, Counter):
            name = f"{family.name}_total"
            found[name] = Registered(name, "counter", family.documentation, labels, (name,))
        elif isinstance(value, Gauge):
            found[family.name] = Registered(family.name, "gauge", family.documentation, labels, (family.name,))
        else:
            samples = tuple(f"{family.name}_{part}" for part in ("bucket", "count", "sum"))
            bounds = tuple(repr(float(bound)) for bound in value._kwargs["buckets"])
            found[family.name] = Registered(
                family.name, "histogram", family.documentation, labels, samples, (*bounds, "+Inf")
            )
    return found


@cache
def by_sample() -> dict[str, Registered]:
    """The same by the names of samples."""
    return {sample: metric for metric in registered().values() for sample in metric.samples}
