"""The text model: what the question alone says, given the text encoder's vector of it.

Logistic regression over that vector and the surface features; scaling and calibration are folded into the weights, so
that a decision is one dot product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.errors import ArtifactDamaged, BadVector
from classifier.linear import Linear
from classifier.surface import NAMES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from classifier.artifact import Artifact


@dataclass(frozen=True, slots=True)
class TextModel:
    """`linear` takes the encoder's vector (dimension numbers) followed by the surface features."""

    linear: Linear
    dimension: int

    def logit(self, vector: NDArray[np.float32], surface: NDArray[np.float32]) -> float:
        """Return the log-odds that the question needs several looks, from its vector (d,) and surface features.

        Raises BadVector for a vector of another length or with a number that is not finite.
        """
        return self.linear.logit(self._inputs(vector, surface))

    def probability(self, vector: NDArray[np.float32], surface: NDArray[np.float32]) -> float:
        """Return the same as a probability, 0-1."""
        return self.linear.probability(self._inputs(vector, surface))

    def contributions(self, vector: NDArray[np.float32], surface: NDArray[np.float32]) -> list[tuple[str, float]]:
        """Return what moved the log-odds away from an average question's, strongest first; meaning as one entry."""
        added = self.linear.contributions(self._inputs(vector, surface))
        parts = [("meaning", float(added[: self.dimension].sum()))]
        parts += zip(NAMES, added[self.dimension :].tolist(), strict=True)
        return sorted(parts, key=lambda part: -abs(part[1]))

    def _inputs(self, vector: NDArray[np.float32], surface: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.concatenate([checked_vector(vector, self.dimension), surface])


def checked_vector(vector: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Return the vector as float32 (dimension,). Raises BadVector."""
    array = np.asarray(vector, dtype=np.float32)
    if array.shape != (dimension,):
        raise BadVector(f"the routing model takes vectors of {dimension} numbers, not of shape {array.shape}")
    if not np.isfinite(array).all():
        raise BadVector("the embedding holds a number that is not finite; the embedder is broken")
    return array


def text_model_of(artifact: Artifact, dimension: int, name: str = "text") -> TextModel:
    """Return a text model of an artifact, over encoder vectors of `dimension` numbers.

    Raises ArtifactDamaged where its inputs are not this release's.
    """
    return TextModel(linear_of(artifact, name, dimension, NAMES), dimension)


def linear_of(artifact: Artifact, name: str, leading: int, names: tuple[str, ...]) -> Linear:
    """Read the linear model `name`, whose inputs are `leading` nameless ones and the features `names`."""
    section = artifact.manifest.get(name)
    if not isinstance(section, dict) or tuple(section.get("features", ())) != names:
        raise ArtifactDamaged(
            f"the routing model in {artifact.folder} was trained with other {name} features than this release computes;"
            " train it anew with `pointsman train`"
        )
    count = leading + len(names)
    parts: dict[str, NDArray[np.float32]] = {}
    for part in ("weights", "means", "spreads"):
        array = artifact.arrays.get(f"{name}_{part}")
        if array is None or array.shape != (count,):
            raise ArtifactDamaged(
                f"the routing model in {artifact.folder}: {name}_{part} must hold {count} numbers; train it anew"
            )
        parts[part] = array.astype(np.float32)
    bias = artifact.arrays.get(f"{name}_bias")
    if bias is None or bias.shape != ():
        raise ArtifactDamaged(f"the routing model in {artifact.folder}: {name}_bias must be one number; train it anew")
    reach = artifact.arrays.get(f"{name}_reach", np.float64(4.0))
    return Linear(parts["weights"], float(bias), parts["means"], parts["spreads"], float(reach))
