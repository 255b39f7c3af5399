"""The report of `pointsman eval answers`: tables and charts from its figures, and misses to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.evaluation.answers.failures import REASONS, RIGHT, sorted_failures
from router.evaluation.answers.figures import EQUAL_PASSAGES
from router.evaluation.answers.record import ASKED
from router.evaluation.plots import BarChart, Bars, Line, LineChart
from router.evaluation.report import Report, Section, Table, escaped, with_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router.evaluation.answers.record import Record

_EXAMPLES = 5
_QUALITY = ("recall@10", "all@10", "em", "f1", "says_answer", "abstained_answerable", "abstained_unanswerable")
_COST = ("agentic_share", "steps", "passages", "llm_calls", "billed_tokens", "retrieved_tokens", "cost_usd")
_COMPARED = ("recall@10", "all@10", "em", "f1", "says_answer")


def answers_report(report: Mapping[str, Any], records: Sequence[Record]) -> Report:
    """Make the report of the figures and the records they come from."""
    sets: dict[str, Any] = {**report["sets"], **({"all sets": report["pooled"]} if "pooled" in report else {})}
    asked = [record for record in records if record.arm == ASKED and record.answerable]
    sections = [
        Section("Quality", tables=[Table(("set", "questions", *_QUALITY), _rows(sets, ("questions", *_QUALITY)))]),
        Section("Cost", tables=[_cost(sets)]),
        _single_shot(sets),
        _passages(sets),
        _budgets(sets),
        _citations(sets),
        _unanswerable(sets),
        _failures(sets, asked),
        Section("Guards", tables=[_guards(sets)]),
    ]
    measured = ", ".join(f"{key}: {value}" for key, value in report["measured"].items())
    return Report("Answers", [section for section in sections if section.tables], [escaped(measured)])


def _rows(sets: Mapping[str, Any], keys: Sequence[str]) -> list[list[Any]]:
    return [[name, *(figures.get(key) for key in keys)] for name, figures in sets.items()]


def _cost(sets: Mapping[str, Any]) -> Table:
    rows = [
        [name, *(figures[key] for key in _COST), figures["seconds"]["p50"], figures["seconds"]["p95"]]
        for name, figures in sets.items()
    ]
    return Table(("set", *_COST, "p50 seconds", "p95 seconds"), rows)


def _single_shot(sets: Mapping[str, Any]) -> Section:
    rows, chart = [], []
    for name, figures in sets.items():
        parts = {"all questions": figures, "several documents": figures.get("several_documents", {})}
        for part, found in parts.items():
            if not found.get("difference"):
                continue
            rows.append([name, part, *(_gap(found["difference"][metric]) for metric in _COMPARED)])
        if figures.get("difference"):
            chart.append((name, figures["single_shot"]["all@10"], figures["all@10"]))
    charts = []
    if chart:
        names, single, ours = zip(*chart, strict=True)
        series = [Bars("single-shot", single), Bars("as asked", ours)]
        charts.append(BarChart("all_at_10", "Every supporting document among ten", "all@10", names, series))
    return Section(
        "Against single-shot on the same questions",
        ["Mean differences with 95% intervals, by paired bootstrap over questions."],
        [Table(("set", "part", *_COMPARED), rows)] if rows else [],
        charts,
    )


def _gap(difference: Mapping[str, float] | None) -> str:
    if difference is None:
        return "–"
    return with_interval(difference["mean"], difference["low"], difference["high"])


def _passages(sets: Mapping[str, Any]) -> Section:
    keys = [*map(str, EQUAL_PASSAGES), "as_acquired"]
    rows, lines = [], []
    for name, figures in sets.items():
        found = figures.get("equal_passages")
        if not found:
            continue
        rows += [
            [name, arm, *(found[key][field] for key in keys)]
            for arm, field in (("as asked", "recall"), ("single-shot", "single_shot"))
        ]
        counts = [float(count) for count in EQUAL_PASSAGES]
        for arm, field in (("as asked", "recall"), ("single-shot", "single_shot")):
            kind = "main" if field == "recall" else "reference"
            values = [found[str(count)][field] for count in EQUAL_PASSAGES]
            lines.append(Line(f"{name}, {arm}", counts, values, kind=kind, marked=True))
    chart = LineChart("equal_passages", "Recall at equal passages", "passages", "recall", lines, x_limits=None)
    return Section(
        "Recall of supporting documents at equal numbers of passages",
        tables=[Table(("set", "arm", *(key.replace("_", " ") for key in keys)), rows)] if rows else [],
        charts=[chart] if rows else [],
    )


def _budgets(sets: Mapping[str, Any]) -> Section:
    rows, lines = [], []
    for name, figures in sets.items():
        found = figures["budgets"]
        rows += [
            [name, int(steps), *(budget[key] for key in ("recall@10", "all@10", "f1", "says_answer", "steps"))]
            for steps, budget in found.items()
        ]
        if found:
            steps = [float(step) for step in found]
            lines.append(Line(name, steps, [budget["all@10"] for budget in found.values()], marked=True))
    columns = ("set", "budget", "recall@10", "all@10", "f1", "says answer", "steps taken")
    chart = LineChart("budgets", "Quality against the step budget", "steps", "all@10", lines, x_limits=None)
    return Section(
        "Quality against the step budget",
        tables=[Table(columns, rows)] if rows else [],
        charts=[chart] if rows else [],
    )


def _citations(sets: Mapping[str, Any]) -> Section:
    keys = ("citation_precision", "citation_recall")
    return Section("Citations", tables=[Table(("set", *keys), _rows(sets, keys))])


def _unanswerable(sets: Mapping[str, Any]) -> Section:
    rows, lines = [], []
    for name, figures in sets.items():
        for signal, found in figures["unanswerable"]["signals"].items():
            if not found["curve"]:
                continue
            rows.append([name, figures["unanswerable"]["questions"], signal, found["auc"], found["abstained"]])
            x = [point["false_abstentions"] for point in found["curve"]]
            lines.append(Line(f"{name}, {signal}", x, [point["abstentions"] for point in found["curve"]]))
    lines.append(Line("chance", (0.0, 1.0), (0.0, 1.0), kind="reference"))
    chart = LineChart(
        "unanswerable", "Abstentions", "on answerable questions", "on unanswerable questions", lines, at=0.1
    )
    return Section(
        "Questions without an answer",
        ["What each signal would catch, were it the one to abstain by; the last column at 10% false abstentions."],
        [Table(("set", "questions", "signal", "AUC", "abstained"), rows)] if rows else [],
        [chart] if rows else [],
    )


def _failures(sets: Mapping[str, Any], asked: Sequence[Record]) -> Section:
    rows = [[name, *(figures["failures"][reason] for reason in REASONS)] for name, figures in sets.items()]
    examples = []
    for reason, records in sorted_failures(asked).items():
        if reason != RIGHT and records:
            ids = ", ".join(escaped(f"{record.set}/{record.id}") for record in records[:_EXAMPLES])
            examples.append(f"{escaped(reason)}: {ids}")
    series = [
        Bars(reason, [figures["failures"][reason] / max(figures["questions"], 1) for figures in sets.values()])
        for reason in REASONS
    ]
    chart = BarChart("failures", "Where answers fail", "share of questions", list(sets), series)
    return Section("Failures", examples, [Table(("set", *REASONS), rows)], [chart])


def _guards(sets: Mapping[str, Any]) -> Table:
    rows = [[name, guard, count] for name, figures in sets.items() for guard, count in figures["guard_trips"].items()]
    return Table(("set", "guard", "trips"), rows or [["–", "none", 0]])
