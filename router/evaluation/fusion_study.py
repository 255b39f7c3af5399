"""Ways to fuse the legs, compared on what the legs really returned, and chosen by cross-validation over sets.

The choice is made on all sets but one and judged on the one left out, so no figure is one that its own set chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from router.evaluation.metrics import distinct, score
from standard.retrieval.fusion import Fused, Leg, convex_fusion, lift, reciprocal_rank_fusion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Fusion: TypeAlias = "Callable[[Leg[int], Leg[int], frozenset[int]], list[Fused[int]]]"


@dataclass(frozen=True, slots=True)
class AskedLegs:
    """What the legs returned for one question; `names` maps chunk keys to documents."""

    dense: Leg[int]
    lexical: Leg[int]
    titled: frozenset[int]
    names: Mapping[int, str]
    support: Sequence[frozenset[str]]


def candidates() -> dict[str, Fusion]:
    """Return the ways to fuse, by name."""
    ways: dict[str, Fusion] = {}
    for k in (60, 20, 5):
        for weight in (0.4, 0.5):
            ways[f"rrf k={k} dense={weight}"] = _rrf(k, weight)
    for weight in (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6):
        ways[f"convex dense={weight}"] = _convex(weight, 0.0)
    for bonus in (0.1, 0.2, 0.3):
        for weight in (0.4, 0.45, 0.5):
            ways[f"convex dense={weight} titles={bonus}"] = _convex(weight, bonus)
    return ways


def fusion_study(sets: Mapping[str, Sequence[AskedLegs]]) -> dict[str, object]:
    """Return recall@5 of every way on every set, and for each set that of the way which the other sets choose."""
    table = {
        way: {name: _recall(fusion, asked) for name, asked in sets.items()} for way, fusion in candidates().items()
    }
    held_out = {}
    for name in sets:
        others = [other for other in sets if other != name]
        if others:
            choice = max(table, key=lambda way: float(np.mean([table[way][other] for other in others])))
            held_out[name] = {"chosen": choice, "recall@5": table[choice][name]}
    return {"recall@5": table, "held_out": held_out}


def _recall(fusion: Fusion, asked: Sequence[AskedLegs]) -> float:
    figures = []
    for legs in asked:
        ranked = distinct(legs.names[item.key] for item in fusion(legs.dense, legs.lexical, legs.titled))
        figures.append(score(ranked, legs.support)["recall@5"])
    return float(np.mean(figures))


def _rrf(k: float, weight: float) -> Fusion:
    return lambda dense, lexical, _: reciprocal_rank_fusion([dense, lexical], k=k, weights=[weight, 1.0 - weight])


def _convex(weight: float, bonus: float) -> Fusion:
    return lambda dense, lexical, titled: lift(convex_fusion([dense, lexical], [weight, 1.0 - weight]), titled, bonus)
