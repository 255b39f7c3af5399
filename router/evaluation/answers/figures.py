"""From records to the figures of `pointsman eval answers`: pure, and the same however often a measurement was resumed.

Fractions are 0-1, means are over questions. `questions` and everything but `abstained_unanswerable` and the curve are
over answerable questions. recall@k and all@k rank distinct documents: those that the loop acquired in its order, or
those of a standard answer's one search by their best chunk.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.measures import auc
from router.evaluation.answers.failures import counted, support_met
from router.evaluation.answers.record import ASKED, SINGLE_SHOT, budget_arm
from router.evaluation.metrics import Difference, distinct, score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from router.evaluation.answers.record import Record

QUALITY = ("recall@5", "recall@10", "all@5", "all@10", "em", "f1", "says_answer")
EQUAL_PASSAGES = (5, 8, 10, 12, 15, 20)
FALSE_ABSTENTIONS = 0.10
_RESAMPLES = 2_000
_POINTS = 101


def figures_of(records: Iterable[Record], budgets: Sequence[int]) -> dict[str, Any]:
    """The figures of one set, or of several pooled."""
    by_arm: dict[str, dict[tuple[str, str], Record]] = {}
    unanswerable = []
    for record in records:
        if record.answerable:
            by_arm.setdefault(record.arm, {})[record.set, record.id] = record
        elif record.arm == ASKED:
            unanswerable.append(record)
    asked = by_arm.get(ASKED, {})
    single = by_arm.get(SINGLE_SHOT, {})
    ours = list(asked.values())
    report = {**_measured(ours, unanswerable), **_against(asked, single)}
    several = {key: record for key, record in asked.items() if len(record.support) > 1}
    if several:
        report["several_documents"] = {
            "questions": len(several),
            **quality(several.values()),
            **_against(several, single),
        }
    report["failures"] = counted(ours)
    if single:
        report["single_shot"]["failures"] = counted(list(single.values()))
    report["budgets"] = {
        str(steps): _budget(by_arm.get(budget_arm(steps), {}), single)
        for steps in budgets
        if budget_arm(steps) in by_arm
    }
    report["unanswerable"] = {
        "questions": len(unanswerable),
        "signals": {
            name: abstention_curve(ours, unanswerable, take)
            for name, take in (("sufficiency", _sufficiency), ("evidence", _evidence))
        },
    }
    return report


def quality(records: Iterable[Record]) -> dict[str, float | None]:
    """The mean of each metric of QUALITY; None where no question has it."""
    rows = [quality_of(record) for record in records]
    return {metric: _mean(row[metric] for row in rows) for metric in QUALITY}


def quality_of(record: Record) -> dict[str, float | None]:
    """The metrics of one answerable question."""
    ranked = score(distinct(record.acquired), [frozenset(choices) for choices in record.support])
    says = None if record.says_answer is None else float(record.says_answer)
    return {**ranked, "em": record.em, "f1": record.f1, "says_answer": says}


def abstention_curve(
    answerable: Sequence[Record], unanswerable: Sequence[Record], signal: Callable[[Record], float | None]
) -> dict[str, Any]:
    """Abstentions on unanswerable questions against false ones, for every threshold of a signal (low = abstain).

    `auc` is the chance that an unanswerable question has the lower signal; `abstained` what is caught while at most
    FALSE_ABSTENTIONS of the answerable ones are lost. `curve` has at most _POINTS points, both ends among them.
    """
    kept = [value for record in answerable if (value := signal(record)) is not None]
    lost = [value for record in unanswerable if (value := signal(record)) is not None]
    if not kept or not lost:
        return {"auc": None, "abstained": None, "curve": []}
    yes, no = np.sort(np.array(kept)), np.sort(np.array(lost))
    thresholds = np.unique(np.concatenate([yes, no]))
    false = np.concatenate([[0.0], np.searchsorted(yes, thresholds, side="right") / len(yes)])
    true = np.concatenate([[0.0], np.searchsorted(no, thresholds, side="right") / len(no)])
    shown = np.unique(np.linspace(0, len(false) - 1, min(_POINTS, len(false))).round().astype(int))
    labels = np.concatenate([np.zeros(len(yes), bool), np.ones(len(no), bool)])
    return {
        "auc": auc(-np.concatenate([yes, no]), labels),
        "false_abstentions": FALSE_ABSTENTIONS,
        "abstained": float(true[false <= FALSE_ABSTENTIONS].max()),
        "curve": [{"false_abstentions": float(false[at]), "abstentions": float(true[at])} for at in shown],
    }


def _measured(ours: Sequence[Record], unanswerable: Sequence[Record]) -> dict[str, Any]:
    precision = [_share(record.cited, record.support) for record in ours if record.cited]
    recall = [support_met(record.cited, record.support) for record in ours if not record.abstained]
    seconds = np.array([record.seconds for record in ours])
    return {
        "questions": len(ours),
        **quality(ours),
        "abstained_answerable": _mean(float(record.abstained) for record in ours),
        "abstained_unanswerable": _mean(float(record.abstained) for record in unanswerable),
        "agentic_share": _mean(float(record.route == "agentic") for record in ours),
        "routes": {route: _mean(float(record.route == route) for record in ours) for route in ("standard", "agentic")},
        "escalated": _mean(float(record.escalated) for record in ours),
        "steps": _mean(float(record.steps) for record in ours),
        "actions": _totals(record.actions for record in ours),
        "passages": _mean(float(record.shown) for record in ours),
        "llm_calls": _mean(float(record.llm_calls) for record in ours),
        "billed_tokens": _mean(float(record.billed_tokens) for record in ours),
        "retrieved_tokens": _mean(float(record.retrieved_tokens) for record in ours),
        "cost_usd": _mean(record.cost_usd for record in ours),
        "seconds": {name: float(np.quantile(seconds, at)) for name, at in (("p50", 0.5), ("p95", 0.95))}
        if len(seconds)
        else {"p50": None, "p95": None},
        "citation_precision": _mean(precision),
        "citation_recall": _mean(recall),
        "guard_trips": _totals(record.guards for record in ours),
        "outcomes": _totals({record.outcome: 1} for record in ours),
        "stop_reasons": _totals({record.stop_reason: 1} for record in ours),
    }


def _against(ours: Mapping[tuple[str, str], Record], single: Mapping[tuple[str, str], Record]) -> dict[str, Any]:
    """The single-shot answers to the same questions, the differences, and recall at equal numbers of passages."""
    pairs = [(record, single[key]) for key, record in ours.items() if key in single]
    if not pairs:
        return {}
    theirs = [other for _, other in pairs]
    rows = [(quality_of(record), quality_of(other)) for record, other in pairs]
    gaps = {metric: [_gap(one[metric], two[metric]) for one, two in rows] for metric in QUALITY}
    costs = {
        "billed_tokens": _mean(float(record.billed_tokens) for record in theirs),
        "abstained_answerable": _mean(float(record.abstained) for record in theirs),
    }
    return {
        "single_shot": {**quality(theirs), **costs},
        "difference": _differences(gaps),
        "equal_passages": {
            **{str(count): _equal(pairs, [count] * len(pairs)) for count in EQUAL_PASSAGES},
            "as_acquired": _equal(pairs, [record.shown for record, _ in pairs]),
        },
    }


def _equal(pairs: Sequence[tuple[Record, Record]], counts: Sequence[int]) -> dict[str, Any]:
    """Recall of support within the first passages of a run, and within as many of the single search."""
    both = [
        (
            support_met(record.acquired[:count], record.support),
            support_met(other.acquired[:count], other.support),
        )
        for (record, other), count in zip(pairs, counts, strict=True)
    ]
    return {
        "recall": fmean(one for one, _ in both),
        "single_shot": fmean(two for _, two in both),
        "difference": _differences({"recall": [one - two for one, two in both]})["recall"],
    }


def _budget(arm: Mapping[tuple[str, str], Record], single: Mapping[tuple[str, str], Record]) -> dict[str, Any]:
    records = list(arm.values())
    figures: dict[str, Any] = {
        "questions": len(records),
        **quality(records),
        "steps": _mean(float(record.steps) for record in records),
        "billed_tokens": _mean(float(record.billed_tokens) for record in records),
    }
    found = _against(arm, single)
    return {**figures, "difference": found["difference"]} if found else figures


def _gap(ours: float | None, theirs: float | None) -> float:
    return np.nan if ours is None or theirs is None else ours - theirs


def _differences(gaps: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float] | None]:
    """The mean of each column's gaps with its percentile bootstrap interval; NaN is a question without the metric.

    All columns are resampled at once: a resample is how often it draws each question.
    """
    table = np.array(list(gaps.values())).T
    known = ~np.isnan(table)
    filled = np.where(known, table, 0.0)
    count = len(table)
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=_RESAMPLES).astype(np.float32)
    sums, sizes = drawn @ filled.astype(np.float32), drawn @ known.astype(np.float32)
    found: dict[str, dict[str, float] | None] = {}
    for at, name in enumerate(gaps):
        means = sums[sizes[:, at] > 0, at] / sizes[sizes[:, at] > 0, at]
        if not known[:, at].any() or not len(means):
            found[name] = None
            continue
        low, high = np.quantile(means, [0.025, 0.975])
        found[name] = asdict(Difference(float(filled[:, at].sum() / known[:, at].sum()), float(low), float(high)))
    return found


def _share(cited: Sequence[str], support: Sequence[Sequence[str]]) -> float:
    wanted = {choice for choices in support for choice in choices}
    return sum(document in wanted for document in cited) / len(cited)


def _totals(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _sufficiency(record: Record) -> float | None:
    return record.sufficiency


def _evidence(record: Record) -> float | None:
    return record.evidence
