"""Adapt the text model to somebody's own labels without forgetting what it knew.

The shipped model is the prior: adapted log-odds = scale * shipped log-odds + shift + change · inputs, with a ridge
penalty on `change` whose strength says how much the labels are believed against the prior. The strength is chosen by
cross-validation among values that begin at "not at all", and the whole procedure, choice included, is judged by an
outer cross-validation on rows that it did not see. Where that judgement is not better than the shipped model's,
nothing is changed. Newton's method in numpy; scikit-learn is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.calibration import brier, expected_calibration_error, expit
from classifier.measures import auc

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

STRENGTHS = (0.0, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
"""Candidate strengths, from the prior alone to the labels nearly alone; divided by rows they would be too timid."""
OUTER, INNER = 5, 5
DIRECTIONS = 96
"""The change lives in so many leading directions of the inputs (found without their labels): a few hundred labels
cannot tell more apart, and the fits stay quick."""


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Adapted log-odds = scale * shipped + shift + weights · inputs; `means` and `spreads` (n,) scale the inputs."""

    scale: float
    shift: float
    weights: NDArray[np.float64]

    def logits(self, shipped: NDArray[np.float64], inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return adapted log-odds (rows,) from the shipped ones (rows,) and the inputs (rows, n)."""
        changed: NDArray[np.float64] = self.scale * shipped + self.shift + inputs @ self.weights
        return changed


@dataclass(frozen=True, slots=True)
class Judged:
    """Figures on rows that were held out."""

    auc: float | None
    loss: float
    brier: float
    ece: float

    def as_json(self) -> dict[str, float | None]:
        """Return the figures by name."""
        return {"auc": self.auc, "log_loss": self.loss, "brier": self.brier, "ece": self.ece}


@dataclass(frozen=True, slots=True)
class Adapted:
    """The outcome. `adaptation` is None where the shipped model was not beaten; `strength` was chosen on all rows."""

    adaptation: Adaptation | None
    strength: float
    before: Judged
    after: Judged
    held_out: NDArray[np.float64]


def adapt(
    shipped: NDArray[np.float64],
    inputs: NDArray[np.float64],
    labels: NDArray[np.bool_],
    *,
    seed: int = 0,
    report: Callable[[float], None] = lambda _: None,
) -> Adapted:
    """Adapt by nested cross-validation.

    `shipped` (rows,) are log-odds, `inputs` (rows, n) of unit spread, `labels` (rows,). Needs at least
    OUTER rows of each label. `report` takes the share done, 0-1.
    """
    directions = _leading(inputs)
    reduced = inputs @ directions
    outer = _stratified(labels, OUTER, seed)
    held_out = np.zeros(len(labels))
    for fold in range(OUTER):
        training = outer != fold
        strength = _choose(shipped[training], reduced[training], labels[training], seed)
        model = fit_change(shipped[training], reduced[training], labels[training], strength)
        held_out[~training] = model.logits(shipped[~training], reduced[~training])
        report((fold + 1) / (OUTER + 1))
    before, after = judge(shipped, labels), judge(held_out, labels)
    strength = _choose(shipped, reduced, labels, seed)
    better = after.loss < before.loss - 1e-4 and (after.auc or 0.0) >= (before.auc or 0.0) - 0.005
    small = fit_change(shipped, reduced, labels, strength)
    model = Adaptation(small.scale, small.shift, directions @ small.weights)
    report(1.0)
    return Adapted(model if better else None, strength, before, after, held_out)


def _leading(inputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the leading principal directions (n, at most DIRECTIONS) of the inputs (rows, n)."""
    values, vectors = np.linalg.eigh(inputs.T @ inputs)
    leading: NDArray[np.float64] = vectors[:, np.argsort(-values)[:DIRECTIONS]]
    return leading


def judge(logits: NDArray[np.float64], labels: NDArray[np.bool_]) -> Judged:
    """Return the figures of log-odds (rows,) against labels (rows,)."""
    probabilities = expit(logits)
    held = np.clip(probabilities, 1e-6, 1.0 - 1e-6)
    loss = -float(np.mean(np.where(labels, np.log(held), np.log(1.0 - held))))
    return Judged(
        auc(logits, labels), loss, brier(probabilities, labels), expected_calibration_error(probabilities, labels)
    )


def fit_change(
    shipped: NDArray[np.float64], inputs: NDArray[np.float64], labels: NDArray[np.bool_], strength: float
) -> Adaptation:
    """Fit scale, shift and, where `strength` > 0, the change; the prior is scale 1, shift 0, no change."""
    columns = inputs.shape[1] if strength > 0.0 else 0
    design = np.concatenate([shipped[:, None], np.ones((len(labels), 1)), inputs[:, :columns]], axis=1)
    prior = np.zeros(design.shape[1])
    prior[0] = 1.0
    penalty = np.full(design.shape[1], 1.0 / max(strength, 1e-9))
    penalty[:2] = (2.0, 0.1)
    solution = prior.copy()
    cost = _cost(design, labels, penalty, prior, solution)
    for _ in range(30):
        probability = expit(design @ solution)
        gradient = design.T @ (probability - labels) + penalty * (solution - prior)
        curvature = probability * (1.0 - probability)
        step = np.linalg.solve((design * curvature[:, None]).T @ design + np.diag(penalty), gradient)
        length = 1.0
        while length > 1e-4:
            tried = solution - length * step
            costs = _cost(design, labels, penalty, prior, tried)
            if costs < cost:
                break
            length /= 2.0
        else:
            break
        gained, solution, cost = cost - costs, tried, costs
        if gained < 1e-5:
            break
    weights = np.zeros(inputs.shape[1])
    weights[:columns] = solution[2:]
    return Adaptation(max(float(solution[0]), 0.0), float(solution[1]), weights)


def _cost(
    design: NDArray[np.float64],
    labels: NDArray[np.bool_],
    penalty: NDArray[np.float64],
    prior: NDArray[np.float64],
    solution: NDArray[np.float64],
) -> float:
    logits = design @ solution
    loss = np.logaddexp(0.0, np.where(labels, -logits, logits)).sum()
    return float(loss + 0.5 * (penalty * (solution - prior) ** 2).sum())


def _choose(shipped: NDArray[np.float64], inputs: NDArray[np.float64], labels: NDArray[np.bool_], seed: int) -> float:
    folds = _stratified(labels, INNER, seed + 1)
    losses = []
    for strength in STRENGTHS:
        held_out = np.zeros(len(labels))
        for fold in range(INNER):
            training = folds != fold
            model = fit_change(shipped[training], inputs[training], labels[training], strength)
            held_out[~training] = model.logits(shipped[~training], inputs[~training])
        losses.append(judge(held_out, labels).loss)
    return STRENGTHS[int(np.argmin(losses))]


def _stratified(labels: NDArray[np.bool_], count: int, seed: int) -> NDArray[np.int64]:
    """Return a fold number for each row, both labels spread evenly."""
    rng = np.random.default_rng(seed)
    folds = np.zeros(len(labels), dtype=np.int64)
    for label in (False, True):
        rows = np.flatnonzero(labels == label)
        folds[rng.permutation(rows)] = np.arange(len(rows)) % count
    return folds
