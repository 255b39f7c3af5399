"""A logistic model as it serves: one dot product, and what each input added to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sigmoid(logit: float) -> float:
    """Return 1 / (1 + e^-logit) without overflow."""
    if logit >= 0.0:
        return 1.0 / (1.0 + math.exp(-logit))
    grown = math.exp(logit)
    return grown / (1.0 + grown)


def log_odds(probability: float) -> float:
    """Return ln(p / (1 - p)), p held to [1e-6, 1 - 1e-6]."""
    held = min(max(probability, 1e-6), 1.0 - 1e-6)
    return math.log(held / (1.0 - held))


@dataclass(frozen=True, slots=True)
class Linear:
    """logit = weights · inputs + bias, scaling and calibration folded in.

    `weights` and `means` are (n,) float32; `means` are the inputs' means in training, against which contributions are
    told. Inputs further than `reach` from their mean, in standard deviations `spreads` (n,), are drawn in to it: a
    collection unlike any seen in training then bends the probability no further than the edge of what was seen.
    """

    weights: NDArray[np.float32]
    bias: float
    means: NDArray[np.float32]
    spreads: NDArray[np.float32]
    reach: float

    @property
    def average(self) -> float:
        """The log-odds of an average question, to which contributions add."""
        return float(self.weights @ self.means) + self.bias

    def held(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the inputs drawn in to the reach."""
        width = self.reach * self.spreads
        held: NDArray[np.float32] = np.minimum(np.maximum(inputs, self.means - width), self.means + width)
        return held

    def logit(self, inputs: NDArray[np.float32]) -> float:
        """Return the calibrated log-odds."""
        return float(self.weights @ self.held(inputs)) + self.bias

    def probability(self, inputs: NDArray[np.float32]) -> float:
        """Return the calibrated probability, 0-1."""
        return sigmoid(self.logit(inputs))

    def contributions(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what each input adds to the log-odds of an average question (n,)."""
        added: NDArray[np.float32] = self.weights * (self.held(inputs) - self.means)
        return added
