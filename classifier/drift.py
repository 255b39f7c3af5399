"""Has traffic moved away from what the model was trained on? Population stability of a signal against a reference.

PSI = sum over bins of (p - q) ln(p / q); below 0.1 nothing moved, above 0.25 look closely (the credit-scoring rule).
The reference is the edges that cut the training rows into bins of equal weight, so q is the same for every bin. Two
signals: the log-odds of the decision (of the text, where the text decided alone), and the question's embedding along
the directions in which the training questions differ most, whose PSIs are averaged.

A `DriftWindow` holds the bins of the last questions, not the questions, and takes some ten kilobytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.errors import ArtifactDamaged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from classifier.artifact import Artifact

BINS = 10
DIRECTIONS = 8
WINDOW = 2000
"""Questions that a window remembers."""
LEAST = 200
"""Questions below which chance alone moves the figure: with n of them, by about (BINS - 1) / n."""
MOVED, CLOSELY = 0.1, 0.25
_FLOOR = 1e-4
_UNKNOWN = 255


@dataclass(frozen=True, slots=True)
class Reference:
    """Inner edges of BINS bins over the training rows.

    `decision` and `text` are edges of log-odds (BINS - 1,); `directions` (k, d) are unit vectors in the space of the
    embedder, `places` (k, BINS - 1) the edges of the projections on them.
    """

    decision: NDArray[np.float64]
    text: NDArray[np.float64]
    directions: NDArray[np.float32]
    places: NDArray[np.float64]

    def logit_bins(self, logits: NDArray[np.float64], *, by_text: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return the bin of each log-odds (n,), NaN has none; `by_text` tells which the text decided alone."""
        found = np.where(
            by_text,
            np.searchsorted(self.text, logits, side="right"),
            np.searchsorted(self.decision, logits, side="right"),
        )
        bins: NDArray[np.uint8] = np.where(np.isfinite(logits), found, _UNKNOWN).astype(np.uint8)
        return bins

    def vector_bins(self, vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the bins (n, k) of vectors (n, d) along the directions; a vector that is not finite has none."""
        sound: NDArray[np.bool_] = np.asarray(np.isfinite(vectors).all(axis=1))
        projected = np.where(sound[:, None], vectors, 0.0) @ self.directions.T
        columns = [np.searchsorted(edges, projected[:, at], side="right") for at, edges in enumerate(self.places)]
        bins: NDArray[np.uint8] = np.where(sound[:, None], np.stack(columns, axis=1), _UNKNOWN).astype(np.uint8)
        return bins


@dataclass(frozen=True, slots=True)
class Stability:
    """PSI of both signals (>= 0), None below LEAST questions, and how many there were of each.

    `logit_shares` (BINS,) are the shares that were found, beside 1 / BINS each in training; `directions` are the PSIs
    of single directions.
    """

    probability: float | None
    embedding: float | None
    logits: int
    vectors: int
    logit_shares: tuple[float, ...] = ()
    directions: tuple[float, ...] = ()


class DriftWindow:
    """The bins of the last `size` questions; `vectors` False where the embedder is another than the reference's."""

    def __init__(self, reference: Reference, *, size: int = WINDOW, vectors: bool = True) -> None:
        self._reference = reference
        self._vectors = vectors
        self._bins = np.full((size, 1 + len(reference.places)), _UNKNOWN, dtype=np.uint8)
        self._next = 0

    def add(self, logits: Sequence[float | None], by_text: Sequence[bool], vectors: NDArray[np.float32] | None) -> None:
        """Add n questions, oldest first: log-odds (None: no model spoke), and vectors (n, d) or None for none."""
        known = np.array([np.nan if logit is None else logit for logit in logits], dtype=np.float64)
        fresh = np.full((len(known), self._bins.shape[1]), _UNKNOWN, dtype=np.uint8)
        fresh[:, 0] = self._reference.logit_bins(known, by_text=np.array(by_text, dtype=bool))
        if self._vectors and vectors is not None and len(known):
            fresh[:, 1:] = self._reference.vector_bins(vectors)
        fresh = fresh[-len(self._bins) :]
        at = (self._next + np.arange(len(fresh))) % len(self._bins)
        self._bins[at] = fresh
        self._next = (self._next + len(fresh)) % len(self._bins)

    def stability(self) -> Stability:
        """Measure what the window holds."""
        logits = self._bins[:, 0]
        logits = logits[logits != _UNKNOWN]
        rows = self._bins[self._bins[:, 1:].max(axis=1, initial=0) != _UNKNOWN, 1:]
        rows = rows[:0] if not self._vectors else rows
        directions = tuple(_psi(rows[:, at])[0] for at in range(rows.shape[1])) if len(rows) >= LEAST else ()
        psi, found = _psi(logits)
        return Stability(
            probability=psi if len(logits) >= LEAST else None,
            embedding=float(np.mean(directions)) if directions else None,
            logits=len(logits),
            vectors=len(rows),
            logit_shares=tuple(found.tolist()) if len(logits) else (),
            directions=directions,
        )


def _psi(bins: NDArray[np.uint8]) -> tuple[float, NDArray[np.float64]]:
    found = np.bincount(bins, minlength=BINS) / max(len(bins), 1)
    return population_stability(np.full(BINS, 1.0 / BINS), found), found


def bin_edges(reference: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the inner edges (BINS - 1,) that cut the reference into bins of equal count, or of equal weight."""
    cuts = np.linspace(0.0, 1.0, BINS + 1)[1:-1]
    if weights is None:
        edges: NDArray[np.float64] = np.quantile(reference, cuts)
        return edges
    order = np.argsort(reference, kind="stable")
    passed = np.cumsum(weights[order]) - weights[order] / 2.0
    weighted: NDArray[np.float64] = np.interp(cuts, passed / weights.sum(), reference[order])
    return weighted


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


def level(psi: float | None) -> str:
    """Say what a PSI means: unknown, stable, moved, or look closely."""
    if psi is None:
        return "unknown"
    return "stable" if psi < MOVED else "moved" if psi < CLOSELY else "look closely"


def reference_of(artifact: Artifact) -> Reference | None:
    """Return an artifact's reference, None for one that was made without. Raises ArtifactDamaged for a garbled one."""
    names = ("decision", "text", "directions", "places")
    parts = [artifact.arrays.get(f"reference_{name}") for name in names]
    if all(part is None for part in parts):
        return None
    decision, text, directions, places = parts
    if (
        decision is None
        or text is None
        or directions is None
        or places is None
        or decision.shape != (BINS - 1,)
        or text.shape != (BINS - 1,)
        or directions.shape[1:] != (artifact.embedder.dimension,)
        or places.shape != (len(directions), BINS - 1)
    ):
        raise ArtifactDamaged(
            f"the routing model in {artifact.folder} has a garbled reference for drift; train it anew"
        )
    return Reference(
        decision.astype(np.float64),
        text.astype(np.float64),
        np.ascontiguousarray(directions, dtype=np.float32),
        places.astype(np.float64),
    )
