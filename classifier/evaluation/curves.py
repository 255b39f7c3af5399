"""Curves behind the figures, as plain points for reports: ROC, reliability, and what each threshold would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from classifier.calibration import expit
from classifier.linear import log_odds

if TYPE_CHECKING:
    from numpy.typing import NDArray

POINTS = 41
THRESHOLDS = tuple(step / 20 for step in range(1, 20))
_Z = 1.959963984540054
"""Standard normal quantile of a 95% interval."""


def roc(scores: NDArray[np.float64], labels: NDArray[np.bool_], *, points: int = POINTS) -> list[dict[str, float]]:
    """Return recall of positives at evenly spaced false positive rates; [] where there is only one kind of label.

    The curve runs through its corners, and along the chord where scores are tied.
    """
    positives, negatives = int(labels.sum()), int((~labels).sum())
    if positives == 0 or negatives == 0:
        return []
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], labels[order]
    last = np.flatnonzero(np.concatenate([ranked[1:] != ranked[:-1], [True]]))
    recall = np.concatenate([[0.0], np.cumsum(hits)[last] / positives])
    false = np.concatenate([[0.0], np.cumsum(~hits)[last] / negatives])
    at = np.linspace(0.0, 1.0, points)
    # Where the curve rises straight up, the upper end is what can be had at that rate.
    place = np.searchsorted(false, at, side="right") - 1
    beyond = np.minimum(place + 1, len(false) - 1)
    width = false[beyond] - false[place]
    part = np.where(width > 0.0, (at - false[place]) / np.where(width > 0.0, width, 1.0), 0.0)
    found = recall[place] + part * (recall[beyond] - recall[place])
    return [{"false_positives": float(x), "recall": float(y)} for x, y in zip(at, found, strict=True)]


def reliability(
    probabilities: NDArray[np.float64], labels: NDArray[np.bool_], *, bins: int = 10
) -> list[dict[str, float]]:
    """Return bins of equal count: mean probability, observed rate with its 95% interval (Wilson 1927), and rows."""
    order = np.argsort(probabilities, kind="stable")
    found = []
    for part in np.array_split(order, min(bins, max(len(order), 1))):
        if not len(part):
            continue
        rate, count = float(labels[part].mean()), len(part)
        centre = (rate + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
        half = _Z / (1 + _Z**2 / count) * float(np.sqrt(rate * (1 - rate) / count + _Z**2 / (4 * count**2)))
        found.append(
            {
                "predicted": float(probabilities[part].mean()),
                "observed": rate,
                "low": min(max(centre - half, 0.0), rate),
                "high": max(min(centre + half, 1.0), rate),
                "rows": float(count),
            }
        )
    return found


def threshold_sweep(probabilities: NDArray[np.float64], labels: NDArray[np.bool_]) -> list[dict[str, float | None]]:
    """Return for each threshold the share sent agentic, recall of positives, precision and false positive rate."""
    found: list[dict[str, float | None]] = []
    for threshold in THRESHOLDS:
        sent = probabilities >= threshold
        found.append(
            {
                "threshold": threshold,
                "agentic": float(sent.mean()) if len(sent) else None,
                "recall": _mean(sent[labels]),
                "precision": _mean(labels[sent]),
                "false_positives": _mean(sent[~labels]),
            }
        )
    return found


def at_rate(logits: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Return the probabilities of a model calibrated for even odds as it would speak where positives have this rate."""
    return expit(logits + log_odds(rate))


def _mean(values: NDArray[np.bool_]) -> float | None:
    return float(values.mean()) if len(values) else None
