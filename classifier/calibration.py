"""From scores to probabilities, and how far probabilities may be believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Platt:
    """calibrated log-odds = slope * logit + shift (Platt 1999)."""

    slope: float
    shift: float


def fit_platt(
    logits: NDArray[np.float64], labels: NDArray[np.bool_], weights: NDArray[np.float64] | None = None
) -> Platt:
    """Fit by Newton's method on Platt's smoothed targets; `logits` must be out of fold. The slope is never negative."""
    weight = np.ones(len(logits)) if weights is None else weights
    positives, negatives = weight[labels].sum(), weight[~labels].sum()
    high, low = (positives + 1.0) / (positives + 2.0), 1.0 / (negatives + 2.0)
    target = np.where(labels, high, low)
    design = np.stack([logits, np.ones_like(logits)], axis=1)
    solution = np.array([1.0, 0.0])
    loss = _loss(design @ solution, target, weight)
    for _ in range(50):
        probability = expit(design @ solution)
        gradient = design.T @ (weight * (probability - target))
        curvature = weight * probability * (1.0 - probability)
        hessian = (design * curvature[:, None]).T @ design + 1e-6 * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        length = 1.0  # halved until the loss falls: from a bold start the whole step overshoots
        while length > 1e-6 and _loss(design @ (solution - length * step), target, weight) >= loss:
            length /= 2.0
        if length <= 1e-6:
            break
        solution = solution - length * step
        loss = _loss(design @ solution, target, weight)
    if solution[0] < 0.0:
        rate = positives / max(positives + negatives, 1e-9)
        return Platt(0.0, float(np.log(max(rate, 1e-6) / max(1.0 - rate, 1e-6))))
    return Platt(float(solution[0]), float(solution[1]))


def _loss(logits: NDArray[np.float64], target: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    return float((weight * (np.logaddexp(0.0, logits) - target * logits)).sum())


def expit(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / (1 + e^-x) of each, without overflow."""
    held = np.clip(logits, -40.0, 40.0)
    result: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-held))
    return result


def expected_calibration_error(
    probabilities: NDArray[np.float64], labels: NDArray[np.bool_], *, bins: int = 10
) -> float:
    """Return the mean gap of probability and observed rate over bins of equal count (Guo et al. 2017, adaptive)."""
    order = np.argsort(probabilities, kind="stable")
    parts = np.array_split(order, min(bins, max(len(order), 1)))
    gaps = [
        len(part) * abs(float(probabilities[part].mean()) - float(labels[part].mean())) for part in parts if len(part)
    ]
    return sum(gaps) / max(len(order), 1)


def brier(probabilities: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """Return the mean squared error of the probabilities."""
    return float(np.mean((probabilities - labels) ** 2))
