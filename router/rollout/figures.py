"""Figures of runs, gathered as they come: how many were answered, how long it took, what it cost."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any, Final

BUCKETS: Final = 10
"""Equal ranges of probability from 0 to 1; the last one holds 1."""
_Z: Final = 1.959963984540054
"""Of a 95% interval."""


def bucket_of(probability: float) -> int:
    """The bucket of a probability (0-1), 0 to BUCKETS - 1."""
    return min(int(probability * BUCKETS), BUCKETS - 1)


def quantile(values: array[float], share: float) -> float | None:
    """The value that `share` (0-1) of the values do not exceed; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(slots=True)
class Arm:
    """Runs of one kind; `seconds` from arrival to end, money in US dollars, `tokens` billed."""

    runs: int = 0
    answered: int = 0
    escalated: int = 0
    usd: float = 0.0
    tokens: int = 0
    seconds: array[float] = field(default_factory=lambda: array("d"))

    def take(self, *, answered: bool, seconds: float, usd: float, tokens: int, escalated: bool = False) -> None:
        """Count a run."""
        self.runs += 1
        self.answered += answered
        self.escalated += escalated
        self.usd += usd
        self.tokens += tokens
        self.seconds.append(seconds)

    def view(self) -> dict[str, Any]:
        """The figures as JSON values; None where there were no runs."""
        runs = self.runs
        return {
            "runs": runs,
            "answered": self.answered / runs if runs else None,
            "escalated": self.escalated,
            "seconds_mean": math.fsum(self.seconds) / runs if runs else None,
            "seconds_p50": quantile(self.seconds, 0.5),
            "seconds_p95": quantile(self.seconds, 0.95),
            "usd_mean": self.usd / runs if runs else None,
            "tokens_mean": self.tokens / runs if runs else None,
        }


@dataclass(slots=True)
class Pairs:
    """Questions answered by the standard route and, aside, by the agentic one. `failed` asides are no pairs."""

    failed: int = 0
    pairs: int = 0
    both: int = 0
    neither: int = 0
    agentic_alone: int = 0
    standard_alone: int = 0
    word_f1: float = 0.0
    overlap: float = 0.0
    overlaps: int = 0
    aside: Arm = field(default_factory=Arm)

    def take(self, standard_answered: bool, aside: dict[str, Any]) -> None:
        """Count an aside as it was kept."""
        if aside.get("error") or "answered" not in aside:
            self.failed += 1
            return
        answered = bool(aside["answered"])
        usage = aside["usage"]
        self.aside.take(
            answered=answered,
            seconds=float(aside["seconds"]),
            usd=float(usage["cost_usd"]),
            tokens=int(usage["input_tokens"]) + int(usage["output_tokens"]),
        )
        self.pairs += 1
        self.both += answered and standard_answered
        self.neither += not answered and not standard_answered
        self.agentic_alone += answered and not standard_answered
        self.standard_alone += standard_answered and not answered
        if answered and standard_answered:
            self.word_f1 += float(aside["word_f1"])
            if aside["document_overlap"] is not None:
                self.overlap += float(aside["document_overlap"])
                self.overlaps += 1

    def view(self) -> dict[str, Any]:
        """The figures as JSON values.

        `agreement`: share of pairs that both answered or neither did; `word_f1` and `document_overlap` are means over
        pairs that both answered; `lift`: questions that the agentic route alone answered less those that the standard
        one alone did, as a share of all pairs, with its 95% interval (paired, normal).
        """
        n, gained, lost = self.pairs, self.agentic_alone, self.standard_alone
        lift = (gained - lost) / n if n else None
        spread = _Z * math.sqrt(max(gained + lost - (gained - lost) ** 2 / n, 0.0)) / n if n else 0.0
        return {
            "pairs": n,
            "failed": self.failed,
            "agreement": (self.both + self.neither) / n if n else None,
            "both_answered": self.both,
            "agentic_alone": gained,
            "standard_alone": lost,
            "word_f1": self.word_f1 / self.both if self.both else None,
            "document_overlap": self.overlap / self.overlaps if self.overlaps else None,
            "lift": lift,
            "lift_low": None if lift is None else lift - spread,
            "lift_high": None if lift is None else lift + spread,
            "aside": self.aside.view(),
        }


def unpaired_lift(agentic: Arm, held_back: Arm) -> dict[str, Any] | None:
    """How much more often the agentic arm answered than the one that a canary held back; None without both.

    With its 95% interval (two independent shares, normal), and what it took more in seconds (p50) and dollars (mean).
    """
    if not agentic.runs or not held_back.runs:
        return None
    with_, without = agentic.answered / agentic.runs, held_back.answered / held_back.runs
    spread = _Z * math.sqrt(with_ * (1 - with_) / agentic.runs + without * (1 - without) / held_back.runs)
    slow, fast = quantile(agentic.seconds, 0.5) or 0.0, quantile(held_back.seconds, 0.5) or 0.0
    return {
        "lift": with_ - without,
        "lift_low": with_ - without - spread,
        "lift_high": with_ - without + spread,
        "seconds_p50_more": slow - fast,
        "usd_mean_more": agentic.usd / agentic.runs - held_back.usd / held_back.runs,
    }
