"""The report of `pointsman eval injection`: its results as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.evaluation.injection import STRATA
from router.evaluation.plots import BarChart, Bars
from router.evaluation.report import Report, Section, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES = {figure: stratum for stratum, figure in STRATA.items()} | {"benign_flagged": "benign texts flagged"}


def injection_report(results: Mapping[str, Any]) -> Report:
    """Return the page of what `evaluate_injection` returned."""
    held_out, shipped = results["held_out"], results["shipped"]
    groups = [figure for figure in _NAMES if figure in held_out]
    figures = Table(
        ("share flagged", "sources and kinds held out", "all rules"),
        [(_NAMES[figure], held_out[figure], shipped[figure]) for figure in groups],
    )
    overall = BarChart(
        "recall",
        "Flagged",
        "share",
        [_NAMES[figure] for figure in groups],
        [
            Bars("held out", [held_out[figure] for figure in groups]),
            Bars("all rules", [shipped[figure] for figure in groups]),
        ],
    )
    sources = held_out["sources"]
    by_source = BarChart(
        "sources",
        "Recall by family of sources, held out",
        "recall",
        list(sources),
        [Bars("recall", list(sources.values()))],
    )
    kinds = [(name, row["rows"], row["flagged"], row["quarantined"]) for name, row in results["kinds"].items()]
    seconds = results["scan_seconds"]
    return Report(
        "Injection scan",
        [
            Section(
                "Attacks found, harmless texts flagged",
                [
                    (
                        f"{results['rows']['attacks']} attacks, {results['rows']['benign']} harmless texts. *Held"
                        " out*: only rules count that attacks of other families of sources support and other kinds of"
                        " harmless text do not trip."
                    ),
                ],
                [figures],
                [overall],
            ),
            Section("Source by source", ["Without plain tasks, which read like any request."], charts=[by_source]),
            Section(
                "Harmless texts by kind, all rules", tables=[Table(("kind", "rows", "flagged", "quarantined"), kinds)]
            ),
            Section(
                "Cost",
                [
                    (
                        f"A scan takes {1e6 * seconds['p50']:.0f} µs at the median and {1e6 * seconds['p99']:.0f} µs"
                        " at p99, on one core."
                    )
                ],
            ),
        ],
        [f"Rules `{results['rules_version']}`."],
    )
