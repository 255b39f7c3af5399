"""The report of `pointsman eval retrieval`: its results as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.evaluation.metrics import METRICS
from router.evaluation.plots import BarChart, Bars
from router.evaluation.report import Report, Section, Table, with_interval
from router.evaluation.retrieval import LEGS

if TYPE_CHECKING:
    from collections.abc import Mapping


def retrieval_report(results: Mapping[str, Any]) -> Report:
    """Return the page of what `evaluate_retrieval` returned."""
    sections = [_sets(results["sets"])]
    if "pooled" in results:
        sections.append(_pooled(results["pooled"], results["differences"]))
    if "fusion" in results:
        sections.append(_study(results["fusion"]))
    return Report(
        "Retrieval",
        sections,
        [
            (
                "*recall@k* is the share of the documents that a question needs among the first k documents found,"
                " *all@k* the share of questions for which every one is. *dense* and *lexical* are the legs, *rrf*"
                " their plain fusion, *hybrid* the search of the product, *linked* what a run knows one step later."
            )
        ],
    )


def _sets(sets: Mapping[str, Mapping[str, Any]]) -> Section:
    rows = [
        (name, row["questions"], row["documents"], leg, *(row[leg][metric] for metric in METRICS))
        for name, row in sets.items()
        for leg in LEGS
    ]
    charts = [
        BarChart(
            f"sets_{metric.replace('@', '_')}",
            metric,
            metric,
            list(sets),
            [Bars(leg, [row[leg][metric] for row in sets.values()]) for leg in LEGS],
        )
        for metric in ("recall@5", "all@5")
    ]
    return Section(
        "Set by set", tables=[Table(("set", "questions", "documents", "leg", *METRICS), rows)], charts=charts
    )


def _pooled(pooled: Mapping[str, Any], differences: Mapping[str, Any]) -> Section:
    rows = [(leg, *(pooled[leg][metric] for metric in METRICS)) for leg in LEGS]
    tables = [Table(("leg", *METRICS), rows)]
    better = differences.get("hybrid_minus_rrf")
    if better:
        gained = [
            (metric, with_interval(found["mean"], found["low"], found["high"])) for metric, found in better.items()
        ]
        tables.append(Table(("hybrid minus rrf", "difference"), gained))
    return Section(
        "Questions that need several documents",
        [
            (
                f"{pooled['questions']} questions of {', '.join(pooled['sets'])}; intervals are 95%, resampled over"
                " questions."
            )
        ],
        tables,
    )


def _study(fusion: Mapping[str, Any]) -> Section:
    ways: Mapping[str, Mapping[str, float]] = fusion["recall@5"]
    sets = list(next(iter(ways.values()), {}))
    chosen = [(name, found["chosen"], found["recall@5"]) for name, found in fusion["held_out"].items()]
    return Section(
        "Other ways to fuse",
        ["recall@5 of each way, and of the way that all other sets choose for a set that is left out."],
        [
            Table(("way", *sets), [(way, *(found[name] for name in sets)) for way, found in ways.items()]),
            Table(("set left out", "way chosen by the others", "recall@5"), chosen),
        ],
    )
