"""What a panel is, and how it asks Prometheus.

`$S` in a query stands for the selector of the dashboard's variables. Times are percentiles of histograms; shares are
sums over sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["lines", "bars", "stat", "heatmap"]
SELECTOR: Final = 'job=~"$job", instance=~"$instance"'


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and how its series are named."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `width` in Grafana's 24 columns, `unit` one of Grafana's, `steps` the colours (from value, colour)."""

    title: str
    about: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    width: int = 8
    top: float | None = None
    steps: tuple[tuple[float | None, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a question and the panels that answer it."""

    title: str
    panels: tuple[Panel, ...]


def quantiles_of(
    metric: str, by: str = "", legend: str = "", quantiles: tuple[float, ...] = (0.5, 0.95)
) -> tuple[Query, ...]:
    """Percentiles of a histogram, split by a label where one is named."""
    labels = f"{by}, le" if by else "le"
    name = legend or (f"{{{{{by}}}}} " if by else "")
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by ({labels}) (rate({metric}_bucket{{$S}}[$__rate_interval])))",
            f"{name}p{quantile * 100:g}",
        )
        for quantile in quantiles
    )


def rates(metric: str, by: str, matchers: str = "") -> tuple[Query, ...]:
    """Events a second by a label."""
    inner = f"$S, {matchers}" if matchers else "$S"
    return (Query(f"sum by ({by}) (rate({metric}{{{inner}}}[$__rate_interval]))", f"{{{{{by}}}}}"),)


def share(part: str, whole: str, legend: str) -> Query:
    """The share of `part` in `whole`, both selectors with their metric."""
    return Query(f"sum(rate({part}[$__rate_interval])) / sum(rate({whole}[$__rate_interval]))", legend)


GOOD_BAD: Final = ((None, "red"), (1.0, "green"))
