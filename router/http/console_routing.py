"""What recent runs say of the threshold: how their probabilities lie, and how the choices turned out."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from router.routing.outcomes import verdict
from standard.domain.answer import DecisionReason
from standard.domain.question import Route

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.journal.finished import FinishedRun

EDGES: Final = tuple(number / 100 for number in range(101))
"""Lower edges of the bins. A threshold among them sends exactly the bins from its own on to the agentic route."""


def bin_of(probability: float) -> int:
    """Return the bin of a probability: the last edge that is not above it, by the same comparison as the decision."""
    return max(0, bisect_right(EDGES, probability) - 1)


def summary(runs: Iterable[FinishedRun]) -> dict[str, Any]:
    """Count ended runs for people.

    `bins` counts probabilities of 0.00, 0.01 … 1.00 of the questions that were left to the gateway; those whose route
    the request forced, and those for which no model spoke, are counted apart; dry runs and runs without a decision are
    left out. `agentic` is how many of the counted were sent there, whatever the reason (a cap or a budget may say no).
    """
    bins = [0] * len(EDGES)
    verdicts: Counter[str] = Counter()
    forced = silent = agentic = escalated = 0
    oldest = ""
    for run in runs:
        oldest = run.created_at.isoformat()
        decision, answer = run.facts.decision, run.facts.answer
        if decision is None or (answer is not None and answer.outcome is None):
            continue
        found = verdict(run.facts, run.feedback)
        verdicts[found.value if found else "none"] += 1
        escalated += bool(run.facts.escalation)
        if decision.reason is DecisionReason.FORCED:
            forced += 1
        elif decision.complex_probability is None:
            silent += 1
        else:
            bins[bin_of(decision.complex_probability)] += 1
            agentic += decision.route is Route.AGENTIC
    return {
        "bins": bins,
        "counted": sum(bins),
        "agentic": agentic,
        "escalated": escalated,
        "forced": forced,
        "without_probability": silent,
        "verdicts": {name: verdicts[name] for name in ("right", "over", "under", "none")},
        "oldest": oldest or None,
    }
