"""The reference that live traffic is compared with: bins of what the model was trained on; see classifier.drift.

Log-odds are those of models that had not seen the row: on rows that it learned from a model is surer than it ever is
in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.drift import DIRECTIONS, bin_edges
from classifier.training.decision import set_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from classifier.training.decision import Rows


def reference_arrays(rows: Rows, decision: NDArray[np.float64], text: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return the reference as the arrays that an artifact keeps.

    `decision` (rows,) and `text` (own questions,) are held-out log-odds. A large set counts no more than in training.
    """
    weights = set_weights(rows.sets)
    vectors = rows.vectors.astype(np.float64)
    centred = (vectors - np.average(vectors, axis=0, weights=weights)) * np.sqrt(weights)[:, None]
    values, axes = np.linalg.eigh(centred.T @ centred)
    directions = axes[:, np.argsort(-values)[:DIRECTIONS]].T
    # The sign of an eigenvector is chance; the largest entry is made positive, so that equal rows give equal arrays.
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.sign(directions[np.arange(len(directions)), largest])[:, None]
    directions = directions.astype(np.float32)
    projected = rows.vectors @ directions.T
    return {
        "reference_decision": bin_edges(decision, weights),
        "reference_text": bin_edges(text),
        "reference_directions": directions,
        "reference_places": np.stack([bin_edges(column.astype(np.float64), weights) for column in projected.T]),
    }
