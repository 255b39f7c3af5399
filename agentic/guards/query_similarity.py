"""Prevents: asking the same thing again in other words.

A model that does not find what it wants rephrases, and pays for the same passages again. The field's rule, cosine
distance at most 0.05, refuses "revenue 2019" after "revenue 2015" and lets paraphrases through; so this guard compares
needs: the facts of two queries must be equal before their distance decides (`agentic.same_need`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from agentic.actions import Search, SearchEach, searches_of
from agentic.guards.verdict import ALLOW, Allow, Refuse, Stop, Verdict
from agentic.same_need.decision import Thresholds, compare_needs, normalise, shipped_thresholds
from standard.domain.answer import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentic.actions import Proposal
    from agentic.settings import GuardSettings
    from agentic.state import RunState

NAME = "query_similarity"


_UNCALIBRATED = Thresholds(matched=2.0, left_over=0.0, max_left_over=0)


@dataclass(frozen=True, slots=True)
class Repeat:
    """Whether a query repeats an earlier one. `distance` is cosine distance (0-2), None without vectors."""

    refused: bool
    distance: float | None
    reason: str
    earlier: str = ""


def distance_of(first: bytes, second: bytes) -> float | None:
    """Cosine distance of two L2-normalised float32 vectors given as bytes; None where one is missing."""
    if not first or len(first) != len(second):
        return None
    similarity = float(np.dot(np.frombuffer(first, np.float32), np.frombuffer(second, np.float32)))
    return min(2.0, max(0.0, 1.0 - similarity))


def compare(earlier: str, query: str, distance: float | None, settings: GuardSettings) -> Repeat:
    """Does `query` ask again for what `earlier` asked, by the rule that the settings name?"""
    if normalise(earlier) == normalise(query):
        return Repeat(refused=True, distance=distance, reason="it is the same query", earlier=earlier)
    if settings.similarity == "off" or distance is None:
        return Repeat(refused=False, distance=distance, reason="the words differ", earlier=earlier)
    if settings.similarity == "cosine":
        refused = distance <= settings.cosine_distance
        sign = "<=" if refused else ">"
        return Repeat(refused, distance, f"cosine distance {distance:.3f} {sign} {settings.cosine_distance}", earlier)
    limits = shipped_thresholds() if settings.distance_calibrated else _UNCALIBRATED
    decision = compare_needs(earlier, query, distance, limits)
    return Repeat(refused=decision.same, distance=distance, reason=decision.reason, earlier=earlier)


def find_repeat(
    state: RunState, search: Search, vector: bytes, also: Iterable[tuple[Search, bytes]] = ()
) -> Repeat | None:
    """The first earlier query of the run (or of `also`) that the search repeats; a change of mode is no repeat."""
    for issued in state.queries:
        # The same words by exact match and by meaning are different looks at the collection.
        if issued.action in _RETRIEVALS and issued.action == search.mode:
            repeat = compare(issued.query, search.query, distance_of(issued.vector, vector), state.settings.guards)
            if repeat.refused:
                return repeat
    for other, other_vector in also:
        if other.mode == search.mode:
            repeat = compare(other.query, search.query, distance_of(other_vector, vector), state.settings.guards)
            if repeat.refused:
                return repeat
    return None


_RETRIEVALS = frozenset({"hybrid", "keyword", "semantic"})


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Refuse a repeat, drop repeats from a plan's searches, end the search at the second refusal in a row."""
    searches = searches_of(proposal.action)
    vectors = proposal.vectors + (b"",) * (len(searches) - len(proposal.vectors))
    kept: list[tuple[Search, bytes]] = []
    reasons: list[str] = []
    for search, vector in zip(searches, vectors, strict=False):
        repeat = find_repeat(state, search, vector, kept)
        if repeat is None:
            kept.append((search, vector))
        else:
            reasons.append(f"it asks again for what “{repeat.earlier}” asked: {repeat.reason}")
    if not reasons:
        return ALLOW
    if kept and isinstance(proposal.action, SearchEach):
        narrowed = replace(proposal.action, searches=tuple(search for search, _ in kept))
        return Allow(replace(proposal, action=narrowed, vectors=tuple(vector for _, vector in kept)), reasons[0])
    in_row = 1
    for refusal in reversed(state.recent_refusals):
        if refusal.guard != NAME:
            break
        in_row += 1
    if in_row >= state.settings.guards.max_similar_in_row:
        return Stop(StopReason.NO_PROGRESS, f"the same was asked again after a refusal; {reasons[0]}")
    return Refuse(f"{reasons[0]}. Ask for something else, or end the search if nothing else is promising.")
