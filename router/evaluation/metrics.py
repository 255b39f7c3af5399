"""Figures of a ranking, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

CUTS = (5, 10)
METRICS = tuple(f"{name}@{k}" for name in ("recall", "all") for k in CUTS)


def distinct(ranked: Iterable[str], *, limit: int = max(CUTS)) -> list[str]:
    """Return the first `limit` distinct documents of a ranking of chunks: each document stands where its best does."""
    seen: dict[str, None] = {}
    for document in ranked:
        seen.setdefault(document)
        if len(seen) == limit:
            break
    return list(seen)


def score(ranked: Sequence[str], support: Sequence[frozenset[str]]) -> dict[str, float]:
    """Return recall@k (the share of supports met) and all@k (1 if every one is) of distinct documents, best first."""
    figures: dict[str, float] = {}
    for k in CUTS:
        head = set(ranked[:k])
        met = sum(1 for choices in support if choices & head)
        figures[f"recall@{k}"] = met / len(support)
        figures[f"all@{k}"] = float(met == len(support))
    return figures


def mean(scores: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over questions, in METRICS' order."""
    return {metric: float(np.mean([figures[metric] for figures in scores])) for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference of paired figures with its bootstrap interval (95%)."""

    mean: float
    low: float
    high: float


def paired_bootstrap(
    ours: Sequence[float], theirs: Sequence[float], *, resamples: int = 10_000, seed: int = 0
) -> Difference:
    """Return the mean of ours - theirs over the same questions, and the percentile interval of its resampled means.

    Source: Efron and Tibshirani, "An introduction to the bootstrap", 1993, chapter 13.
    """
    gaps: NDArray[np.float64] = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    chance = np.random.default_rng(seed)
    means = np.array([gaps[chance.integers(0, len(gaps), len(gaps))].mean() for _ in range(resamples)])
    low, high = np.quantile(means, [0.025, 0.975])
    return Difference(float(gaps.mean()), float(low), float(high))
