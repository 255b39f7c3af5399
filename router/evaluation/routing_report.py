"""The report of `pointsman eval routing`: its results as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.evaluation.classifier_report import reliability_chart, roc_chart, sweep_chart, sweep_table
from router.evaluation.plots import BarChart, Bars, Line, LineChart
from router.evaluation.report import Report, Section, Table, with_interval

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = {"random": "chance", "text": "text", "evidence": "evidence", "both": "both", "oracle": "oracle"}
_STYLES = {"random": "reference", "oracle": "bound"}
_SWEPT = {"agentic": "sent agentic", "complete": "evidence complete", "recall": "recall", "precision": "precision"}


def routing_report(results: Mapping[str, Any]) -> Report:
    """Return the page of what `evaluate_routing` returned."""
    sections = [_sets(results["sets"])]
    pooled = results.get("pooled")
    if pooled:
        sections = [_shares(pooled), _quality(pooled, results["threshold"]), *sections]
    single_hop = {name: results[name] for name in results["sets"] if name in results}
    if single_hop:
        sections.append(_single_hop(single_hop))
    return Report(
        "Routing",
        sections,
        [
            (
                f"Model `{results['model_version']}`, which was fitted on first looks at questions of"
                f" {', '.join(results['trained_on'])}. A perfect loop is assumed: a question that is sent agentic ends"
                " with complete evidence, one that is not has the five passages of its first search. Brackets are 95%"
                " intervals, resampled by question."
            )
        ],
    )


def _shares(pooled: Mapping[str, Any]) -> Section:
    validated = pooled.get("cross_validated")
    rows = [
        (
            title,
            with_interval(pooled[kind], pooled["intervals"][kind]["low"], pooled["intervals"][kind]["high"]),
            _of(validated, kind),
        )
        for kind, title in KINDS.items()
    ]
    gaps = [
        (
            title,
            with_interval(*(pooled[name][part] for part in ("value", "low", "high"))),
            with_interval(*(validated[name][part] for part in ("value", "low", "high"))) if validated else None,
        )
        for name, title in (("gap_closed_text", "text"), ("gap_closed_evidence", "evidence"), ("gap_closed", "both"))
    ]
    lines = [
        Line(
            title,
            [point["agentic"] for point in pooled["curves"][kind]],
            [point["complete"] for point in pooled["curves"][kind]],
            _STYLES.get(kind, "main"),
        )
        for kind, title in KINDS.items()
    ]
    lowest = min(min(line.y) for line in lines)
    chart = LineChart(
        "shares",
        "What routing buys",
        "share sent agentic",
        "share with complete evidence",
        lines,
        y_limits=(lowest, 1.0),
        at=pooled["share"],
    )
    share = f"{100 * pooled['share']:.0f}%"
    headings = ("sent by", "whole set held out", "cross-validated")
    return Section(
        f"Complete evidence when {share} go agentic",
        [
            f"{pooled['questions']} questions of {', '.join(pooled['sets'])}. *Whole set held out*: models that saw no"
            " question of the set. *Cross-validated*: models that saw other questions of the same set"
            + (
                f" ({validated['questions']} questions, {validated['folds']} folds)."
                if validated
                else "; none to have here."
            ),
            f"The second table says which part of the way from chance to the oracle is gone at {share}.",
        ],
        [Table(headings, rows), Table(("gap closed by", *headings[1:]), gaps)],
        [chart],
    )


def _of(validated: Mapping[str, Any] | None, kind: str) -> str | None:
    if not validated:
        return None
    interval = validated["intervals"][kind]
    return with_interval(validated[kind], interval["low"], interval["high"])


def _quality(pooled: Mapping[str, Any], threshold: float) -> Section:
    matched = pooled["length_matched"]
    rows = [(KINDS[kind], value, matched["auc"][kind]) for kind, value in pooled["auc"].items()]
    return Section(
        "How well incomplete first looks are foreseen",
        [
            (
                f"Whole sets held out. The slice with lengths matched has {matched['questions']} questions. For"
                " calibration the probability, which is made for even odds, is moved to the rate of this pool:"
                f" calibration error {pooled['ece']:.3f}, Brier score {pooled['brier']:.3f}. Thresholds are those of"
                f" the settings (default {threshold})."
            )
        ],
        [Table(("by", "AUC", "AUC, lengths matched"), rows), sweep_table(pooled["thresholds"], _SWEPT)],
        [
            roc_chart("incomplete_roc", {KINDS[kind]: points for kind, points in pooled["roc"].items()}),
            reliability_chart("incomplete_reliability", pooled["reliability"], "first look incomplete"),
            sweep_chart("incomplete_thresholds", pooled["thresholds"], _SWEPT),
        ],
    )


def _sets(sets: Mapping[str, Mapping[str, Any]]) -> Section:
    def held_out(row: Mapping[str, Any], name: str) -> str:
        found = row["held_out_intervals"][name]
        return with_interval(row["held_out"][name], found["low"], found["high"])

    rows = [
        (
            name,
            row["questions"],
            row["several"],
            row["incomplete"],
            held_out(row, "auc_several"),
            row["auc_several"],
            held_out(row, "auc_incomplete"),
            row["auc_incomplete"],
            row["agentic_share"],
        )
        for name, row in sets.items()
    ]
    columns = (
        "set",
        "questions",
        "need several documents",
        "incomplete at 5",
        "AUC several, set held out",
        "shipped",
        "AUC incomplete, set held out",
        "shipped",
        "sent agentic at the threshold",
    )
    charts = []
    for name, title in (("auc_several", "several documents needed"), ("auc_incomplete", "first look incomplete")):
        known = {key: row for key, row in sets.items() if row["held_out"][name] is not None}
        if not known:
            continue
        bars = Bars(
            "set held out",
            [row["held_out"][name] for row in known.values()],
            [row["held_out_intervals"][name]["low"] for row in known.values()],
            [row["held_out_intervals"][name]["high"] for row in known.values()],
        )
        text = Bars("text alone", [row["held_out"][f"{name}_text"] for row in known.values()])
        charts.append(BarChart(f"sets_{name}", f"AUC: {title}", "AUC", list(known), [bars, text], at=0.5))
    told = "*Shipped* is the model as it ships, which saw the sets named above."
    return Section("Set by set", [told], [Table(columns, rows)], charts)


def _single_hop(sets: Mapping[str, Mapping[str, float]]) -> Section:
    rows = [
        (name, row["single_shot"], row["single_shot_held_out"], row["single_shot_held_out_at_share"])
        for name, row in sets.items()
    ]
    columns = ("set", "shipped", "set held out, at the threshold", "set held out, at the pool's share")
    return Section("Single-hop questions that stay single-shot", tables=[Table(columns, rows)])
