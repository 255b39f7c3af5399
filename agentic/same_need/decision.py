"""The decision itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class NeedDecision:
    """Whether two queries ask for the same, and why, in words for people and models."""

    same: bool
    reason: str


def normalise(query: str) -> str:
    """The query's words, casefolded, without punctuation and spacing."""
    return " ".join(_WORD.findall(query.casefold()))


def compare_needs(earlier: str, query: str, distance: float) -> NeedDecision:
    """Do both ask for the same? `distance` is the cosine distance of their embeddings (0-2)."""
    numbers = [sorted(re.findall(r"\d+", text)) for text in (earlier, query)]
    if numbers[0] != numbers[1]:
        return NeedDecision(same=False, reason="the numbers differ")
    same = distance <= 0.1
    return NeedDecision(same=same, reason=f"distance {distance:.3f}")
