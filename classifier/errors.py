"""What can be wrong with an artifact, a vector or a file of labels. The gateway maps these to its own tree.

ClassifierError
 x ArtifactDamaged     a file of the artifact is missing, changed or makes no sense
 x EmbedderMismatch    the artifact was made for vectors of another embedder
 x BadVector           a vector has the wrong length or is not finite
 x BadLabels           a file of labels cannot be learned from

Messages name the thing and the way out.
"""

from __future__ import annotations


class ClassifierError(Exception):
    """Root of this package's errors; `message` is for people."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ArtifactDamaged(ClassifierError):
    """The artifact on disk is not what its manifest says."""


class EmbedderMismatch(ClassifierError):
    """The artifact was trained on vectors of another embedder."""


class BadVector(ClassifierError):
    """A vector that no embedder makes: wrong length, not finite."""


class BadLabels(ClassifierError):
    """Labels that nothing can be learned from."""
