"""The decision: what text and first look say together, as three linear models over the same numbers.

`incomplete` is the decision: the probability that the passages of a single-shot answer miss a document that the
question needs. `several` is the probability that it needs more than one document at all; `evidence` is `incomplete`
from the first look alone, without the wording of the question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.errors import ArtifactDamaged
from classifier.evidence.names import NAMES as EVIDENCE
from classifier.surface import NAMES as SURFACE
from classifier.text_model import linear_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from classifier.artifact import Artifact
    from classifier.linear import Linear

HEADS = ("alone", "asked")
"""The text encoder's two log-odds: as a question that stands alone, and as one asked of a collection."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The text encoder's own readings of its vectors: `weights` (2, d) and `bias` (2,)."""

    weights: NDArray[np.float32]
    bias: NDArray[np.float32]

    def logits(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-odds (n, 2) of vectors (n, d)."""
        read: NDArray[np.float32] = vectors @ self.weights.T + self.bias
        return read


@dataclass(frozen=True, slots=True)
class DecisionModel:
    """`incomplete` takes evidence and surface features; `several` the embedding, these, and the encoder's log-odds."""

    incomplete: Linear
    several: Linear
    evidence: Linear

    def incomplete_logit(self, evidence: NDArray[np.float32], surface: NDArray[np.float32]) -> float:
        """Return the log-odds that the first look misses something needed."""
        return self.incomplete.logit(np.concatenate([evidence, surface]))

    def contributions(self, evidence: NDArray[np.float32], surface: NDArray[np.float32]) -> list[tuple[str, float]]:
        """Return what moved the decision's log-odds away from an average question's, strongest first."""
        added = self.incomplete.contributions(np.concatenate([evidence, surface])).tolist()
        return sorted(zip((*EVIDENCE, *SURFACE), added, strict=True), key=lambda part: -abs(part[1]))


def heads_of(artifact: Artifact, dimension: int) -> Heads:
    """Return the heads of an artifact's encoder. Raises ArtifactDamaged where they do not fit it."""
    weights, bias = artifact.arrays.get("heads_weights"), artifact.arrays.get("heads_bias")
    if weights is None or bias is None or weights.shape != (len(HEADS), dimension) or bias.shape != (len(HEADS),):
        raise ArtifactDamaged(f"the routing model in {artifact.folder} lacks the heads of its encoder; train it anew")
    return Heads(weights.astype(np.float32), bias.astype(np.float32))


def decision_model_of(artifact: Artifact) -> DecisionModel:
    """Return the decision model of an artifact. Raises ArtifactDamaged where its inputs are not this release's."""
    names = (*EVIDENCE, *SURFACE)
    incomplete = linear_of(artifact, "incomplete", 0, names)
    several = linear_of(artifact, "several", artifact.embedder.dimension, (*names, *HEADS))
    return DecisionModel(incomplete, several, linear_of(artifact, "evidence", 0, EVIDENCE))
