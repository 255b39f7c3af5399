"""Fit a logistic model and fold scaling and calibration into its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.calibration import Platt, fit_platt
from classifier.linear import Linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Block:
    """Columns that are scaled alike: each to unit spread, then by `strength`, which is how much they are trusted.

    With `together` the columns keep their proportions (an embedding); else each is scaled for itself (features).
    """

    width: int
    strength: float
    together: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted model and the calibrated log-odds of its training rows when they were held out (NaN: never were)."""

    linear: Linear
    held_out: NDArray[np.float64]


def fit(
    inputs: NDArray[np.float32],
    labels: NDArray[np.bool_],
    blocks: Sequence[Block],
    folds: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    *,
    strength: float,
    reach: float,
    weights: NDArray[np.float64] | None = None,
) -> Fitted:
    """Fit on all rows, calibrated on the folds' held-out rows.

    `inputs` is (rows, columns), `labels` (rows,) True = complex. `strength` is scikit-learn's C, the inverse of the
    ridge penalty. `reach`: see classifier.linear. `weights` (rows,) count a row more or less.
    """
    weight = np.ones(len(labels)) if weights is None else weights
    held_out = np.full(len(labels), np.nan)
    for training, held in folds:
        part = fit_linear(inputs[training], labels[training], blocks, strength, reach, weight[training])
        held_out[held] = logits(part, inputs[held])
    seen = np.isfinite(held_out)
    whole = fit_linear(inputs, labels, blocks, strength, reach, weight)
    platt = fit_platt(held_out[seen], labels[seen], weight[seen])
    return Fitted(calibrated(whole, platt), platt.slope * held_out + platt.shift)


def calibrated(linear: Linear, platt: Platt) -> Linear:
    """Return the model with the calibration folded into its weights."""
    return Linear(
        (platt.slope * linear.weights).astype(np.float32),
        platt.slope * linear.bias + platt.shift,
        linear.means,
        linear.spreads,
        linear.reach,
    )


def logits(linear: Linear, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the log-odds of many rows (rows,)."""
    result: NDArray[np.float64] = (
        linear.held(inputs).astype(np.float64) @ linear.weights.astype(np.float64) + linear.bias
    )
    return result


def fit_linear(
    inputs: NDArray[np.float32],
    labels: NDArray[np.bool_],
    blocks: Sequence[Block],
    strength: float,
    reach: float,
    weights: NDArray[np.float64],
) -> Linear:
    """Fit on all rows, without calibration; see `fit`."""
    from sklearn.linear_model import LogisticRegression

    means = inputs.mean(axis=0)
    spreads = np.maximum(inputs.std(axis=0), 1e-6)
    scale = _scale(spreads, blocks)
    width = reach * spreads
    held = np.clip(inputs, means - width, means + width)
    model = LogisticRegression(C=strength, max_iter=2000)
    model.fit((held - means) * scale, labels, sample_weight=weights)
    coefficients = model.coef_[0] * scale
    return Linear(
        coefficients.astype(np.float32),
        float(model.intercept_[0] - coefficients @ means),
        means.astype(np.float32),
        spreads.astype(np.float32),
        reach,
    )


def _scale(spreads: NDArray[np.float32], blocks: Sequence[Block]) -> NDArray[np.float32]:
    scale = np.empty_like(spreads)
    start = 0
    for block in blocks:
        part = slice(start, start + block.width)
        own = spreads[part]
        scale[part] = block.strength / (np.sqrt(np.mean(own**2)) if block.together else own)
        start += block.width
    if start != len(spreads):
        raise ValueError(f"blocks cover {start} of {len(spreads)} columns")
    return scale
