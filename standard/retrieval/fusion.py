"""Fusion of ranked lists: reciprocal ranks, and the convex combination of normalised scores.

Which one the product uses, with what weight and why: docs/decisions/ (fusion of the dense and lexical legs).

Sources: Cormack, Clarke, Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning methods",
SIGIR 2009; Bruch, Gai, Ingber, "An analysis of fusion functions for hybrid retrieval", ACM TOIS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

Key = TypeVar("Key", bound="Hashable")


@dataclass(frozen=True, slots=True)
class Leg(Generic[Key]):
    """One ranked list: distinct keys, best first, with their scores in the leg's own unit (higher is better).

    `floor` is the score of everything the leg does not hold: 0 for a lexical leg that held all there is; None means
    the lowest score in the list, for a list that was cut at its depth.
    """

    keys: Sequence[Key]
    scores: Sequence[float]
    floor: float | None = None

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.scores):
            raise ValueError(f"a leg has {len(self.keys)} keys but {len(self.scores)} scores")

    def without(self, keys: frozenset[Key]) -> Leg[Key]:
        """Return the leg without some keys."""
        if not keys:
            return self
        kept = [(key, score) for key, score in zip(self.keys, self.scores, strict=True) if key not in keys]
        return Leg([key for key, _ in kept], [score for _, score in kept], self.floor)


@dataclass(frozen=True, slots=True)
class Fused(Generic[Key]):
    """A key of the fused list; `score` lies in 0-1 and compares within one list only."""

    key: Key
    score: float


def reciprocal_rank_fusion(
    legs: Sequence[Leg[Key]], *, k: float = 60.0, weights: Sequence[float] | None = None
) -> list[Fused[Key]]:
    """Fuse by the sum of weight / (k + rank), ranks from 1; best first. Equal weights unless given.

    Scores are divided by the best possible sum, so that a key that leads every leg has 1.
    """
    shares = _shares(legs, weights)
    best = 1.0 / (k + 1.0)
    scores: dict[Key, float] = {}
    for leg, share in zip(legs, shares, strict=True):
        for rank, key in enumerate(leg.keys, start=1):
            scores[key] = scores.get(key, 0.0) + share / (k + rank) / best
    return _best_first(scores.items())


def convex_fusion(legs: Sequence[Leg[Key]], weights: Sequence[float] | None = None) -> list[Fused[Key]]:
    """Fuse by the weighted mean of each leg's scores, scaled to 0-1 between the leg's floor and its best; best first.

    What a leg does not hold counts as its floor, 0. A leg whose best equals its floor says nothing to rank by: all it
    holds get 1. Equal weights unless given.
    """
    shares = _shares(legs, weights)
    scores: dict[Key, float] = {}
    for leg, share in zip(legs, shares, strict=True):
        if not leg.keys:
            continue
        best = max(leg.scores)
        floor = min(leg.scores) if leg.floor is None else min(leg.floor, best)
        span = best - floor
        for key, score in zip(leg.keys, leg.scores, strict=True):
            part = max(score - floor, 0.0) / span if span > 0.0 else 1.0
            scores[key] = scores.get(key, 0.0) + share * part
    return _best_first(scores.items())


def lift(fused: Sequence[Fused[Key]], favoured: frozenset[Key], bonus: float) -> list[Fused[Key]]:
    """Add `bonus` (>= 0) to the scores of some keys, also of such as the list does not hold (0 before); best first.

    Scores are divided by 1 + bonus, so that they stay within 0-1.
    """
    if not favoured or bonus <= 0.0:
        return list(fused)
    scores = {item.key: item.score for item in fused} | dict.fromkeys(favoured - {item.key for item in fused}, 0.0)
    lifted = ((key, (score + (bonus if key in favoured else 0.0)) / (1.0 + bonus)) for key, score in scores.items())
    return _best_first(lifted)


def _shares(legs: Sequence[Leg[Key]], weights: Sequence[float] | None) -> list[float]:
    if weights is None:
        return [1.0 / len(legs)] * len(legs)
    if len(weights) != len(legs) or any(weight < 0.0 for weight in weights) or sum(weights) <= 0.0:
        raise ValueError(f"{len(legs)} legs need as many weights >= 0, not all of them 0")
    total = sum(weights)
    return [weight / total for weight in weights]


def _best_first(scores: Iterable[tuple[Key, float]]) -> list[Fused[Key]]:
    # sorted() is stable: keys of equal score keep the order in which the legs brought them
    return [Fused(key, min(score, 1.0)) for key, score in sorted(scores, key=lambda item: -item[1])]
