"""The metrics of a group of processes as one: what each tells, added up by what the numbers mean.

Prevents a group view that falls when a worker goes (its counts are kept), and sums of what is no sum: a dependency that
one worker misses is down, whatever the others say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_COUNTED: Final = frozenset({"counter", "histogram", "summary"})
_WORST: Final[dict[str, Callable[[float, float], float]]] = {
    "pointsman_dependency_up": min,
    "pointsman_canary_ok": min,
    "pointsman_drift_psi": max,
}
"""Gauges that are no sums: the group is as well as its unwell worker."""


def parsed(text: str) -> list[Metric]:
    """The families of an OpenMetrics text. Raises ValueError where it is none."""
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def merged(groups: Iterable[Iterable[Metric]]) -> list[Metric]:
    """One family of each name. Counters and histograms are summed, gauges too, but for those of which the worst counts.

    A value that is not a number is left out where another is one; of exemplars the newest stays.
    """
    families: dict[str, Metric] = {}
    samples: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], Sample]] = {}
    for family in (family for group in groups for family in group):
        if family.name not in families:
            families[family.name] = Metric(family.name, family.documentation, family.type, family.unit)
        into = samples.setdefault(family.name, {})
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            into[key] = _joined(family.name, into[key], sample) if key in into else sample
    for name, family in families.items():
        family.samples = list(samples[name].values())
    return list(families.values())


def counted(families: Iterable[Metric]) -> list[Metric]:
    """The families that outlive a process: what it counted stays counted, what it measured of itself ends with it."""
    return [family for family in families if family.type in _COUNTED]


def _joined(family: str, one: Sample, other: Sample) -> Sample:
    if math.isnan(one.value) or math.isnan(other.value):
        return other if math.isnan(one.value) else one
    if one.name.endswith("_created"):
        value = min(one.value, other.value)
    else:
        join = _WORST.get(family)
        value = one.value + other.value if join is None else join(one.value, other.value)
    newest = max(
        (sample.exemplar for sample in (one, other) if sample.exemplar is not None),
        key=lambda exemplar: float(exemplar.timestamp or 0.0),
        default=None,
    )
    return Sample(one.name, one.labels, value, None, newest)
