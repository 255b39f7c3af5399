"""Ranking figures and their bootstrap intervals, without scikit-learn: they can be had wherever models serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def auc(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float | None:
    """Return the area under the ROC curve: the chance that a positive outranks a negative, ties counting half.

    None where there is only one kind of label.
    """
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if positives == 0 or negatives == 0:
        return None
    return float((ranks(scores)[labels].sum() - positives * (positives + 1) / 2) / positives / negatives)


def ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks from 1, ties sharing their mean."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: NDArray[np.float64] = (last - (counts - 1) / 2.0)[inverse.reshape(-1)]
    return mean


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with the bounds that hold it in 95% of resamples; None where there was nothing to measure."""

    value: float | None
    low: float | None
    high: float | None

    def as_json(self) -> dict[str, float | None]:
        """Return {value, low, high}."""
        return {"value": self.value, "low": self.low, "high": self.high}


def bootstrap(
    figure: Callable[[NDArray[np.int64]], float | None],
    count: int,
    *,
    groups: NDArray[np.int64] | None = None,
    rounds: int = 1000,
    seed: int = 0,
) -> Interval:
    """Return `figure` over all rows and its percentile interval over resampled rows.

    `figure` takes row numbers. With `groups` (count,) whole groups are drawn, for rows of one domain are alike.
    """
    rng = np.random.default_rng(seed)
    everything = np.arange(count)
    members = [everything[groups == group] for group in np.unique(groups)] if groups is not None else None
    found: list[float] = []
    for _ in range(rounds):
        if members is None:
            drawn = rng.integers(0, count, count)
        else:
            drawn = np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])
        value = figure(drawn)
        if value is not None:
            found.append(value)
    if not found:
        return Interval(figure(everything), None, None)
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(figure(everything), float(low), float(high))


def threshold_for_false_positives(scores: NDArray[np.float64], labels: NDArray[np.bool_], rate: float) -> float:
    """Return the lowest threshold at which at most `rate` of the negatives reach it (score >= threshold)."""
    negatives = np.sort(scores[~labels])[::-1]
    allowed = int(np.floor(rate * len(negatives)))
    if allowed >= len(negatives):
        return -np.inf
    return float(np.nextafter(negatives[allowed], np.inf))
