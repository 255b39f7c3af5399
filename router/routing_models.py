"""The routing models behind the gateway's view of them: classifier artifacts in, Signals out.

The classifier package knows arrays and strings alone; here its inputs are taken from questions and search results, and
its errors become ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from classifier.artifact import SHIPPED, Embedder, read_artifact
from classifier.errors import ArtifactDamaged, ClassifierError, EmbedderMismatch
from classifier.text_model import TextModel, text_model_of
from router.decide import Signals
from standard.domain.errors import ClassifierUnavailable, Damaged, FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.domain.errors import PointsmanError
    from standard.domain.passage import SearchResult
    from standard.domain.question import Question
    from standard.embedding.protocol import Embedder as QueryEmbedder

_log = structlog.get_logger("pointsman.classifier")
DEFAULT_THRESHOLD = 0.5
"""The threshold while no model is loaded; nothing is compared with it then."""


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """Implements router.parts.RoutingModels over one artifact."""

    version: str
    threshold: float
    text: TextModel

    def text_signals(self, question: Question, vector: NDArray[np.float32]) -> Signals:
        """What the text alone says."""
        probability = self.text.probability(question.text.raw, vector)
        return Signals(text=probability, combined=probability, model_version=self.version)

    async def signals(self, question: Question, vector: NDArray[np.float32], first: SearchResult) -> Signals:  # noqa: ARG002
        """What text and first retrieval say together."""
        return self.text_signals(question, vector)

    def explain(self, question: Question, vector: NDArray[np.float32]) -> list[tuple[str, float]]:
        """What moved the text's log-odds away from an average question's, strongest first."""
        return self.text.contributions(question.text.raw, vector)


class ModelLoader:
    """Loads the models and hands out what is ready; a model that cannot be loaded never stops the gateway.

    `folder` names a trained model; empty = the shipped one. `embed_many` embeds texts in one batch (None: nothing but
    loading is wanted).
    """

    def __init__(
        self,
        folder: str,
        embedder: QueryEmbedder,
        embed_many: Callable[[Sequence[str]], Awaitable[NDArray[np.float32]]] | None,
    ) -> None:
        self._folder = Path(folder) if folder else SHIPPED
        self._embedder = Embedder(embedder.id, embedder.checksum, embedder.dimensions)
        self._embed_many = embed_many
        self._models: LoadedModels | None = None
        self._error: PointsmanError | None = None

    @property
    def threshold(self) -> float:
        """The loaded model's own threshold."""
        return DEFAULT_THRESHOLD if self._models is None else self._models.threshold

    def load(self) -> None:
        """Load or reload. A failure is logged and kept for `require`; a model loaded earlier stays in use."""
        try:
            self._models = load_models(self._folder, self._embedder)
            self._error = None
        except (Damaged, FailedPrecondition) as error:
            self._error = error
            _log.warning("the routing model cannot be used; questions take the safe route", problem=error.message)

    def current(self) -> LoadedModels | None:
        """Return the models, or None while there are none."""
        return self._models

    def require(self) -> LoadedModels:
        """Return the models. Raises what went wrong in loading."""
        if self._models is not None and self._error is None:
            return self._models
        raise self._error or ClassifierUnavailable("no routing model is loaded yet")


def load_models(folder: Path, embedder: Embedder) -> LoadedModels:
    """Read an artifact. Raises Damaged, or FailedPrecondition for another embedder."""
    try:
        artifact = read_artifact(folder, embedder)
        threshold = artifact.manifest.get("threshold")
        if not isinstance(threshold, int | float) or not 0.0 <= threshold <= 1.0:
            raise ArtifactDamaged(f"{folder}: threshold {threshold!r} is no number from 0 to 1")
        return LoadedModels(artifact.version, float(threshold), text_model_of(artifact))
    except EmbedderMismatch as error:
        raise FailedPrecondition(error.message) from None
    except ClassifierError as error:
        raise Damaged(error.message) from None
