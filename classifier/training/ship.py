"""Put the parts of a routing model together: the text model on the tuned encoder, the decision, and its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.artifact import digest_of
from classifier.calibration import brier, expected_calibration_error, expit
from classifier.decision_model import HEADS
from classifier.evidence.names import NAMES as EVIDENCE
from classifier.linear import Linear
from classifier.measures import auc, bootstrap
from classifier.surface import NAMES as SURFACE
from classifier.training.decision import FittedDecision, Rows, mixed_sets
from classifier.training.fit import Block, fit
from classifier.training.folds import group_folds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from classifier.artifact import Embedder

ALONE = HEADS.index("alone")
_TEXT_REACH = 4.0


@dataclass(frozen=True, slots=True)
class TunedQuestions:
    """Own questions that an encoder scored which had not seen their domain; arrays are parallel.

    `keys` (n,) stand for the questions, `held_out` (n,) are the encoder's log-odds, `vectors` (n, d) those of the
    encoder that ships.
    """

    keys: NDArray[np.uint64]
    domains: tuple[str, ...]
    labels: NDArray[np.bool_]
    held_out: NDArray[np.float32]
    surface: NDArray[np.float32]
    vectors: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FittedText:
    """The text model over the shipped encoder's vectors and surface features; log-odds of held-out domains (n,)."""

    linear: Linear
    held_out: NDArray[np.float64]


def fit_text(questions: TunedQuestions, head: NDArray[np.float64], bias: float) -> FittedText:
    """Weigh the encoder's log-odds and the surface features on held-out domains, and calibrate.

    `head` (d,) and `bias` are the encoder's own reading of its vectors.
    """
    inputs = np.concatenate([questions.held_out[:, None], questions.surface], axis=1).astype(np.float32)
    blocks = [Block(1, 1.0), Block(questions.surface.shape[1], 0.3)]
    stage = fit(inputs, questions.labels, blocks, group_folds(questions.domains, 10), strength=0.1, reach=_TEXT_REACH)
    onto = float(stage.linear.weights[0])
    vectors = questions.vectors
    linear = Linear(
        np.concatenate([onto * head, stage.linear.weights[1:]]).astype(np.float32),
        stage.linear.bias + onto * bias,
        np.concatenate([vectors.mean(axis=0), stage.linear.means[1:]]).astype(np.float32),
        np.concatenate([vectors.std(axis=0), stage.linear.spreads[1:]]).astype(np.float32),
        _TEXT_REACH,
    )
    return FittedText(linear, stage.held_out)


def arrays_of(name: str, linear: Linear) -> dict[str, NDArray[Any]]:
    """Return a linear model as the arrays that an artifact keeps."""
    return {
        f"{name}_weights": linear.weights,
        f"{name}_bias": np.array(linear.bias),
        f"{name}_means": linear.means,
        f"{name}_spreads": linear.spreads,
        f"{name}_reach": np.array(linear.reach),
    }


def row_arrays(rows: Rows, keys: NDArray[np.uint64], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return first looks as arrays; `names` numbers the sets, `keys` (rows,) stand for the questions."""
    return {
        "row_keys": keys,
        "row_sets": np.array([names.index(name) for name in rows.sets.tolist()], dtype=np.int32),
        "row_vectors": rows.vectors.astype(np.float16),
        "row_evidence": rows.evidence.astype(np.float32),
        "row_surface": rows.surface.astype(np.float16),
        "row_encoded": np.nan_to_num(rows.encoded).astype(np.float32),
        "row_encoded_known": np.isfinite(rows.encoded.sum(axis=1)),
        "row_several": rows.several,
        "row_incomplete": rows.incomplete,
    }


def rows_from(arrays: dict[str, NDArray[Any]], names: Sequence[str]) -> Rows:
    """Return the rows that `row_arrays` laid out."""
    encoded = arrays["row_encoded"].astype(np.float32).copy()
    encoded[~arrays["row_encoded_known"]] = np.nan
    return Rows(
        np.array([names[number] for number in arrays["row_sets"]]),
        arrays["row_vectors"].astype(np.float32),
        arrays["row_evidence"].astype(np.float32),
        arrays["row_surface"].astype(np.float32),
        encoded,
        arrays["row_several"].astype(bool),
        arrays["row_incomplete"].astype(bool),
    )


def manifest_of(
    *,
    embedder: Embedder,
    encoder_dimension: int,
    threshold: float,
    created: str,
    release: str,
    arrays: dict[str, NDArray[Any]],
    set_names: Sequence[str],
    figures: dict[str, Any],
    training: dict[str, Any],
) -> dict[str, Any]:
    """Return the manifest; the version ends in a digest of the arrays, so that equal models are called alike."""
    return {
        "name": "pointsman routing model",
        "version": f"{release}+{digest_of(arrays)[:8]}",
        "created": created,
        "embedder": {"id": embedder.id, "checksum": embedder.checksum, "dimension": embedder.dimension},
        "encoder": {"dimension": encoder_dimension, "heads": list(HEADS)},
        "text": {"features": list(SURFACE)},
        "incomplete": {"features": [*EVIDENCE, *SURFACE]},
        "several": {"features": [*EVIDENCE, *SURFACE, *HEADS]},
        "evidence": {"features": list(EVIDENCE)},
        "rows": {"sets": list(set_names)},
        "threshold": threshold,
        "figures": figures,
        "training": training,
    }


def text_figures(questions: TunedQuestions, fitted: FittedText) -> dict[str, Any]:
    """Return AUC with its interval over domains, calibration error and Brier score of held-out domains."""
    logits, labels = fitted.held_out, questions.labels
    _, groups = np.unique(np.array(questions.domains), return_inverse=True)
    interval = bootstrap(lambda rows: auc(logits[rows], labels[rows]), len(labels), groups=groups.astype(np.int64))
    probabilities = expit(logits)
    return {
        "questions": len(labels),
        "domains": len(set(questions.domains)),
        "auc": interval.as_json(),
        "ece": expected_calibration_error(probabilities, labels),
        "brier": brier(probabilities, labels),
    }


def decision_figures(rows: Rows, fitted: FittedDecision) -> dict[str, Any]:
    """Return, set by set, AUC of both targets by models that had not seen the set."""
    found: dict[str, Any] = {}
    mixed = set(mixed_sets(rows))
    for name in sorted(set(rows.sets.tolist())):
        which = rows.sets == name
        several = fitted.several.held_out[which]
        found[name] = {
            "questions": int(which.sum()),
            "incomplete": float(rows.incomplete[which].mean()),
            "several": float(rows.several[which].mean()),
            "auc_incomplete": auc(fitted.incomplete.held_out[which], rows.incomplete[which]),
            "auc_incomplete_evidence": auc(fitted.evidence.held_out[which], rows.incomplete[which]),
            "auc_several": auc(several, rows.several[which])
            if name in mixed and bool(np.isfinite(several).all())
            else None,
        }
    return found
