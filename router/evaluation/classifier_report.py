"""The report of `pointsman eval classifier`: its results as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.evaluation.plots import BarChart, Bars, Line, LineChart
from router.evaluation.report import Report, Section, Table, with_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def classifier_report(results: Mapping[str, Any]) -> Report:
    """Return the page of what `evaluate_classifier` returned."""
    return Report(
        "Text model",
        [_own(results["own"]), _unseen(results["unseen"]), _sources(results["sources"]), _flips(results)],
        [
            (
                f"Model `{results['model_version']}`. How well the wording of a question alone tells whether it needs"
                " several looks. Brackets are 95% intervals: of our own questions resampled by domain, elsewhere by"
                " row."
            )
        ],
    )


def roc_chart(name: str, curves: Mapping[str, Sequence[Mapping[str, float]]]) -> LineChart:
    """Return a ROC chart of named curves (lists of {false_positives, recall}); empty curves are left out."""
    lines = [
        Line(kind, [point["false_positives"] for point in points], [point["recall"] for point in points])
        for kind, points in curves.items()
        if points
    ]
    chance = Line("chance", [0.0, 1.0], [0.0, 1.0], "reference")
    return LineChart(name, "ROC", "false positive rate", "recall", [*lines, chance])


def reliability_chart(name: str, bins: Sequence[Mapping[str, float]], what: str) -> LineChart:
    """Return predicted probability against the observed rate of `what`, with Wilson intervals."""
    line = Line(
        "model",
        [part["predicted"] for part in bins],
        [part["observed"] for part in bins],
        low=[part["low"] for part in bins],
        high=[part["high"] for part in bins],
        marked=True,
    )
    ideal = Line("calibrated", [0.0, 1.0], [0.0, 1.0], "reference")
    return LineChart(name, "Reliability", "predicted probability", f"observed rate: {what}", [line, ideal])


def sweep_chart(name: str, sweep: Sequence[Mapping[str, float | None]], kinds: Mapping[str, str]) -> LineChart:
    """Return what each threshold does; `kinds` maps a row's keys to the names of its lines."""
    lines = []
    for key, title in kinds.items():
        known = [(row["threshold"], row[key]) for row in sweep if row.get(key) is not None]
        lines.append(Line(title, [float(x or 0.0) for x, _ in known], [float(y or 0.0) for _, y in known]))
    return LineChart(name, "Threshold", "threshold", "share", lines)


def sweep_table(sweep: Sequence[Mapping[str, float | None]], kinds: Mapping[str, str]) -> Table:
    """Return the same as a table, every second threshold."""
    return Table(
        ("threshold", *kinds.values()), [[row["threshold"], *(row.get(key) for key in kinds)] for row in sweep[1::2]], 2
    )


SWEPT = {"agentic": "sent agentic", "recall": "recall", "precision": "precision", "false_positives": "false positives"}


def _own(own: Mapping[str, Any]) -> Section:
    matched = own["length_matched"]
    figures = Table(
        ("figure", "value"),
        [
            ("AUC", with_interval(own["auc"], *own["auc_interval"])),
            ("AUC, lengths matched", with_interval(matched["auc"], *matched["auc_interval"])),
            ("calibration error (ECE)", with_interval(own["ece"], *own["ece_interval"])),
            ("Brier score", with_interval(own["brier"], *own["brier_interval"])),
        ],
    )
    return Section(
        "Own questions, domains held out",
        [
            (
                f"{own['questions']} questions of {own['domains']} domains, each scored by an encoder that had not"
                f" seen its domain; {own['left_out']} without such a score are left out. The slice with lengths"
                f" matched has {matched['questions']} questions: as many of either label at every number of words."
            )
        ],
        [figures, sweep_table(own["thresholds"], SWEPT)],
        [
            roc_chart("own_roc", {"text": own["roc"]}),
            reliability_chart("own_reliability", own["reliability"], "needs several looks"),
            sweep_chart("own_thresholds", own["thresholds"], SWEPT),
        ],
    )


def _unseen(unseen: Mapping[str, Any]) -> Section:
    matched = unseen["length_matched"]
    figures = Table(
        ("figure", "value"),
        [
            (
                f"mean AUC of {unseen['mixed_sources']} sources with both labels",
                with_interval(unseen["mixed_auc"], *unseen["mixed_auc_interval"]),
            ),
            ("AUC pooled", with_interval(unseen["pooled_auc"], *unseen["pooled_auc_interval"])),
            ("AUC pooled, lengths matched", with_interval(matched["auc"], *matched["auc_interval"])),
            ("recall of complex", with_interval(unseen["complex_recall"], *unseen["complex_recall_interval"])),
            ("false positive rate seen", with_interval(unseen["realised_fpr"], *unseen["realised_fpr_interval"])),
            ("false positive rate aimed at in training", unseen["target_fpr"]),
        ],
    )
    return Section(
        "Public sources, families held out",
        [
            (
                f"{unseen['rows']} questions, at most 1,000 a label and source. A model on the encoder's vectors and"
                " surface features is fitted on all families but one and tried on that one, at the threshold that"
                " gave the aimed-at rate of false positives on the training side."
            )
        ],
        [figures],
        [roc_chart("unseen_roc", {"family held out": unseen["roc"]})],
    )


def _sources(sources: Mapping[str, Mapping[str, Any]]) -> Section:
    rows = [
        (name, row["rows"], with_interval(row["auc"], *row["auc_interval"]), row["auc_shipped"], row["mixed"])
        for name, row in sources.items()
    ]
    known = {name: row for name, row in sources.items() if row["auc"] is not None}
    chart = BarChart(
        "sources",
        "Public sources",
        "AUC",
        list(known),
        [
            Bars(
                "family held out",
                [row["auc"] for row in known.values()],
                [row["auc_interval"][0] for row in known.values()],
                [row["auc_interval"][1] for row in known.values()],
            ),
            Bars("shipped model", [row["auc_shipped"] for row in known.values()]),
        ],
        at=0.5,
    )
    return Section(
        "Source by source",
        ["Sources with one label alone have no AUC; those that count for the mean have 200 rows at least."],
        [Table(("source", "rows", "AUC, family held out", "AUC, shipped model", "counts for the mean"), rows)],
        [chart] if known else [],
    )


def _flips(results: Mapping[str, Any]) -> Section:
    intervals = results["flip_intervals"]
    rows = [(kind, with_interval(value, *intervals[kind])) for kind, value in results["flips"].items()]
    chart = BarChart(
        "flips",
        "Flips",
        "share of questions that change their route",
        list(results["flips"]),
        [
            Bars(
                "flips",
                list(results["flips"].values()),
                [intervals[kind][0] for kind in results["flips"]],
                [intervals[kind][1] for kind in results["flips"]],
            )
        ],
        limits=None,
    )
    return Section(
        "Flips under harmless changes",
        ["Share of own questions that land on the other side of the threshold when only their form changes."],
        [Table(("change", "flips"), rows)],
        [chart],
    )
