"""The decision: equal facts first, then a distance.

Two queries whose facts are equal and whose words all answer each other ask for the same, unless their embeddings are
far apart (a sign that the lexicon misled). Where words are left over on both sides, they ask for the same only if the
embeddings are very near: that threshold is calibrated (`agentic.same_need.calibrate`) and holds for one embedder.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from agentic.same_need.comparison import Comparison, compare

_WORD = re.compile(r"\w+|[€$£¥%°+#<>=]|(?<!\w)[-−](?=\d)")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Cosine distances (0-2) up to which two queries without a difference of fact ask for the same.

    `matched`: every word is answered. `left_over`: up to `max_left_over` words are not; 0 never.
    `embedder` is the id of the embedder that they are calibrated for.
    """

    matched: float
    left_over: float
    max_left_over: int
    embedder: str = ""


@dataclass(frozen=True, slots=True)
class NeedDecision:
    """Whether two queries ask for the same, and why, in words for people and models."""

    same: bool
    reason: str


@cache
def shipped_thresholds() -> Thresholds:
    """The calibrated thresholds that come with the package."""
    raw = json.loads(files("agentic.same_need").joinpath("data/thresholds.json").read_text(encoding="utf-8"))
    return Thresholds(
        matched=float(raw["matched"]),
        left_over=float(raw["left_over"]),
        max_left_over=int(raw["max_left_over"]),
        embedder=str(raw["embedder"]),
    )


def normalise(query: str) -> str:
    """The query's words, casefolded, and the signs that tell one from another ($5, €5, C++), without punctuation."""
    return " ".join(_WORD.findall(query.casefold()))


def compare_needs(earlier: str, query: str, distance: float, thresholds: Thresholds | None = None) -> NeedDecision:
    """Do both ask for the same? `distance` is the cosine distance of their embeddings (0-2)."""
    return decide(compare(earlier, query), distance, thresholds or shipped_thresholds())


def decide(found: Comparison, distance: float, limits: Thresholds) -> NeedDecision:
    """Decide from what a comparison found."""
    if found.conflict:
        return NeedDecision(same=False, reason=found.conflict)
    rest = (*found.left, *found.right)
    if not rest:
        if distance <= limits.matched:
            return NeedDecision(same=True, reason=f"the facts are equal and every word is answered ({distance:.3f})")
        return NeedDecision(same=False, reason=f"the words match, but the distance is {distance:.3f}")
    words = ", ".join(f"“{word.text}”" for word in rest[:3])
    if not (found.left and found.right):
        # All words of one stand in the other, which says more: a part of a question is a need of its own.
        return NeedDecision(same=False, reason=f"only one of them speaks of {words} ({distance:.3f})")
    if len(rest) <= limits.max_left_over and distance <= limits.left_over:
        return NeedDecision(same=True, reason=f"the facts are equal and {words} makes no difference ({distance:.3f})")
    return NeedDecision(same=False, reason=f"only one of them speaks of {words} ({distance:.3f})")
