"""Has traffic moved away from what the model was trained on? Population stability of a signal against a reference.

PSI = sum over bins of (p - q) ln(p / q); below 0.1 nothing moved, above 0.25 look closely (the credit-scoring rule).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 10
_FLOOR = 1e-4


def bin_edges(reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inner edges (BINS - 1,) that cut the reference into bins of equal count."""
    edges: NDArray[np.float64] = np.quantile(reference, np.linspace(0.0, 1.0, BINS + 1)[1:-1])
    return edges


def shares(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of values in each bin (BINS,)."""
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1)
    found: NDArray[np.float64] = counts / max(len(values), 1)
    return found


def population_stability(reference: NDArray[np.float64], current: NDArray[np.float64]) -> float:
    """Return the PSI of two lists of shares over the same bins, >= 0; empty bins count as 0.01%."""
    p, q = np.maximum(current, _FLOOR), np.maximum(reference, _FLOOR)
    p, q = p / p.sum(), q / q.sum()
    return float(((p - q) * np.log(p / q)).sum())
