"""Fit the decision on first looks whose truth is known; every figure comes from collections that were held out whole.

`incomplete`, the decision, learns from all sets. `several` learns from the sets that hold both kinds of question only:
where every question needs several documents, a model learns to recognise the set. It is fitted in two stages, for the
text encoder's log-odds are strong on what the encoder was tuned on: first without them, then both together on rows that
neither stage had seen. A set of more than ROWS_PER_SET questions counts as so many.

How often one look falls short differs from collection to collection (0 to 74% of questions), so the decision is
calibrated for even odds, as the text model is: 0.5 is then the border for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.calibration import fit_platt
from classifier.linear import Linear, log_odds
from classifier.training.fit import Block, Fitted, fit, fit_linear, logits

if TYPE_CHECKING:
    from numpy.typing import NDArray

REACH = 1.5
"""Standard deviations: a collection unlike those in training is trusted no further."""
INCOMPLETE_STRENGTH = 0.02
SEVERAL_STRENGTH = 0.01
MEANING = 0.4
"""How much the embedding is trusted against the features."""
ROWS_PER_SET = 130.0
DOUBTFUL_STRENGTH = 1.0


@dataclass(frozen=True, slots=True)
class Rows:
    """First looks at questions of several sets; all arrays are parallel.

    `vectors`, `evidence` and `surface` are (rows, columns): the embedding and the features. `encoded` (rows, 2) are the
    text encoder's log-odds by an encoder that had not seen the set, NaN where there is none. `sets` names each row's
    set. `several` and `incomplete` (rows,) are the truth.
    """

    sets: NDArray[np.str_]
    vectors: NDArray[np.float32]
    evidence: NDArray[np.float32]
    surface: NDArray[np.float32]
    encoded: NDArray[np.float32]
    several: NDArray[np.bool_]
    incomplete: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.sets)

    def chosen(self, which: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        return Rows(
            self.sets[which],
            self.vectors[which],
            self.evidence[which],
            self.surface[which],
            self.encoded[which],
            self.several[which],
            self.incomplete[which],
        )


@dataclass(frozen=True, slots=True)
class FittedDecision:
    """The models, and their log-odds on every row by models that had not seen the row's set (NaN: never held out)."""

    incomplete: Fitted
    several: Fitted
    evidence: Fitted


def fit_decision(rows: Rows) -> FittedDecision:
    """Fit all three models. Needs two sets with both labels at least, and two for `several`."""
    features = np.concatenate([rows.evidence, rows.surface], axis=1)
    blocks = [Block(features.shape[1], 1.0)]
    weights = set_weights(rows.sets)
    folds = set_folds(rows.sets)
    incomplete = fit(
        features, rows.incomplete, blocks, folds, strength=INCOMPLETE_STRENGTH, reach=REACH, weights=weights
    )
    evidence = fit(
        rows.evidence,
        rows.incomplete,
        [Block(rows.evidence.shape[1], 1.0)],
        folds,
        strength=INCOMPLETE_STRENGTH,
        reach=REACH,
        weights=weights,
    )
    return FittedDecision(
        at_even_odds(incomplete, rows.incomplete, weights),
        fit_several(rows),
        at_even_odds(evidence, rows.incomplete, weights),
    )


def at_even_odds(fitted: Fitted, labels: NDArray[np.bool_], weights: NDArray[np.float64]) -> Fitted:
    """Return the model as it would speak where positives and negatives are equally frequent."""
    rate = float(np.clip(np.average(labels, weights=weights), 1e-3, 1.0 - 1e-3))
    shift = -log_odds(rate)
    linear = fitted.linear
    moved = Linear(linear.weights, linear.bias + shift, linear.means, linear.spreads, linear.reach)
    return Fitted(moved, fitted.held_out + shift)


def fit_several(rows: Rows) -> Fitted:
    """Fit whether several documents are needed; inputs are vectors, evidence, surface and encoded, in this order."""
    mixed = np.isin(rows.sets, mixed_sets(rows))
    usable = rows.chosen(mixed)
    inputs = np.concatenate([usable.vectors, usable.evidence, usable.surface], axis=1)
    features = usable.evidence.shape[1] + usable.surface.shape[1]
    blocks = [Block(usable.vectors.shape[1], MEANING), Block(features, 1.0)]
    weights = set_weights(usable.sets)
    alone = np.full(len(usable), np.nan)
    for training, held in set_folds(usable.sets):
        part = fit_linear(
            inputs[training], usable.several[training], blocks, SEVERAL_STRENGTH, REACH, weights[training]
        )
        alone[held] = logits(part, inputs[held])
    whole = fit_linear(inputs, usable.several, blocks, SEVERAL_STRENGTH, REACH, weights)
    seen: NDArray[np.bool_] = np.isfinite(usable.encoded.sum(axis=1))
    stage = np.concatenate([alone[:, None], usable.encoded], axis=1).astype(np.float32)
    both = np.full(len(usable), np.nan)
    for training, held in set_folds(usable.sets):
        learn, score = training[seen[training]], held[seen[held]]
        if len(score) and len(np.unique(usable.several[learn])) == 2:
            both[score] = logits(_stage(stage[learn], usable.several[learn], weights[learn]), stage[score])
    judged = np.isfinite(both)
    platt = fit_platt(both[judged], usable.several[judged], weights[judged])
    second = _stage(stage[seen], usable.several[seen], weights[seen])
    held_out = np.full(len(rows), np.nan)
    held_out[mixed] = platt.slope * both + platt.shift
    return Fitted(_joined(whole, second, platt.slope, platt.shift), held_out)


def _stage(inputs: NDArray[np.float32], labels: NDArray[np.bool_], weights: NDArray[np.float64]) -> Linear:
    return fit_linear(inputs, labels, [Block(inputs.shape[1], 1.0)], DOUBTFUL_STRENGTH, 4.0, weights)


def _joined(first: Linear, second: Linear, slope: float, shift: float) -> Linear:
    """Return both stages as one linear model over the first's inputs and the encoder's log-odds."""
    onto = float(second.weights[0])
    return Linear(
        (slope * np.concatenate([onto * first.weights, second.weights[1:]])).astype(np.float32),
        slope * (onto * first.bias + second.bias) + shift,
        np.concatenate([first.means, second.means[1:]]),
        np.concatenate([first.spreads, second.spreads[1:]]),
        REACH,
    )


def mixed_sets(rows: Rows) -> list[str]:
    """Return the sets over whose collection some questions need several documents and some do not."""
    collections = collection_of(rows.sets)
    mixed = [name for name in np.unique(collections) if len(np.unique(rows.several[collections == name])) == 2]
    return sorted(set(rows.sets[np.isin(collections, mixed)].tolist()))


def collection_of(sets: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return each row's collection: sets over one are named alike up to a hyphen (musique, musique-steps)."""
    return np.array([name.partition("-")[0] for name in sets.tolist()])


def set_weights(sets: NDArray[np.str_]) -> NDArray[np.float64]:
    """Return the weight of each row (rows,): sets of more than ROWS_PER_SET rows count as so many."""
    _, inverse, counts = np.unique(sets, return_inverse=True, return_counts=True)
    weights: NDArray[np.float64] = np.minimum(1.0, ROWS_PER_SET / counts)[inverse.reshape(-1)]
    return weights


def set_folds(sets: NDArray[np.str_]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return (training rows, held-out rows) with each collection held out once."""
    rows, collections = np.arange(len(sets)), collection_of(sets)
    return [(rows[collections != name], rows[collections == name]) for name in np.unique(collections)]
