"""The routing models behind the gateway's view of them: classifier artifacts in, Signals out.

The classifier package knows arrays and strings alone; here its inputs are taken from questions and search results, and
its errors become ours.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import structlog

from classifier.artifact import SHIPPED, Embedder, read_artifact
from classifier.decision_model import DecisionModel, decision_model_of
from classifier.drift import Reference, reference_of
from classifier.encoder import TextEncoder, text_encoder_of
from classifier.errors import ArtifactDamaged, BadVector, ClassifierError
from classifier.explain import explain_decision, explain_text
from classifier.language import reads_as_english
from classifier.linear import sigmoid
from classifier.surface import surface_features
from classifier.text_model import TextModel, text_model_of
from router.asked import asked_text
from router.decide import Signals
from router.routing.evidence import EmbeddedParts, evidence_of, parts_of
from standard.domain.errors import ClassifierUnavailable, Damaged, EmbedderUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from numpy.typing import NDArray

    from classifier.artifact import Artifact
    from classifier.explain import Explanation
    from standard.domain.errors import PointsmanError
    from standard.domain.passage import SearchResult
    from standard.domain.question import Question
    from standard.embedding.protocol import Embedder as QueryEmbedder

    Encode = Callable[[str], Awaitable[NDArray[np.float32]]]
    EmbedMany = Callable[[Sequence[str]], Awaitable[NDArray[np.float32]]]

_log = structlog.get_logger("pointsman.classifier")
DEFAULT_THRESHOLD = 0.5
"""The threshold while no model is loaded; nothing is compared with it then."""


@dataclass(frozen=True, slots=True)
class TextReading:
    """A question as the text model read it: `logit` its log-odds, of which adaptation to own labels added `shift`.

    `encoded` (d,) is the text encoder's vector of it.
    """

    asked: str
    encoded: NDArray[np.float32]
    surface: NDArray[np.float32]
    logit: float
    shift: float
    knows_language: bool


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """Implements router.parts.RoutingModels over one artifact.

    `decision` is None where the configured embedder is not the one it was trained on: then the text decides alone.
    `before` is the text model that `text` was adapted from, None for one that was not adapted; `encode` gives the text
    encoder's vector of a question, `embed_many` embeds the parts of a question in one batch. `reference` is what live
    traffic is compared with, None for a model that was made without.
    """

    version: str
    threshold: float
    encode: Encode
    text: TextModel
    before: TextModel | None
    decision: DecisionModel | None
    embed_many: EmbedMany | None
    reference: Reference | None = None

    @property
    def knows_vectors(self) -> bool:
        """Whether the reference for drift is of the embedder in use."""
        return self.decision is not None

    async def read(self, question: Question) -> TextReading:
        """Read the question's text; needs nothing else, so it may go on beside embedding and search."""
        asked = asked_text(question)
        encoded, surface = await self.encode(asked), surface_features(asked)
        logit = self.text.logit(encoded, surface)
        shift = 0.0 if self.before is None else logit - self.before.logit(encoded, surface)
        return TextReading(asked, encoded, surface, logit, shift, reads_as_english(asked))

    def text_signals(self, reading: TextReading) -> Signals:
        """What the text alone says."""
        probability = sigmoid(reading.logit)
        return Signals(
            text=probability,
            combined=probability,
            model_version=self.version,
            knows_language=reading.knows_language,
            adapted_by=reading.shift,
        )

    async def embed_parts(self, question: Question) -> EmbeddedParts | None:
        """Embed what `signals` compares with a first retrieval; needs none itself, so it may go on beside the search.

        None where nothing is: no parts, no decision model, or a language that it does not know.
        """
        asked = asked_text(question)
        if self.decision is None or self.embed_many is None or not reads_as_english(asked):
            return None
        parts = parts_of(asked)
        return EmbeddedParts(parts, await self.embed_many(parts.texts)) if parts.texts else None

    async def signals(
        self,
        reading: TextReading,
        vector: NDArray[np.float32],
        first: SearchResult,
        embedded: EmbeddedParts | None = None,
    ) -> Signals:
        """What text and first retrieval say together; the text alone where the retriever gives no vectors.

        `embedded` are the question's parts where they are at hand.
        """
        if not reading.knows_language or self.decision is None:
            return self.text_signals(reading)
        evidence = await self._evidence(reading.asked, vector, first, embedded)
        if evidence is None:
            return self.text_signals(reading)
        return Signals(
            text=sigmoid(reading.logit),
            evidence=self.decision.evidence.probability(evidence),
            combined=sigmoid(self.decision.incomplete_logit(evidence, reading.surface) + reading.shift),
            model_version=self.version,
            adapted_by=reading.shift,
        )

    async def explain(
        self, reading: TextReading, vector: NDArray[np.float32] | None = None, first: SearchResult | None = None
    ) -> Explanation:
        """What moved the log-odds away from an average question's; the text's alone without a first retrieval."""
        if vector is not None and first is not None and self.decision is not None and reading.knows_language:
            evidence = await self._evidence(reading.asked, vector, first)
            if evidence is not None:
                return explain_decision(self.decision, evidence, reading.surface, reading.shift)
        return explain_text(self.text, reading.encoded, reading.surface)

    async def _evidence(
        self, asked: str, vector: NDArray[np.float32], first: SearchResult, embedded: EmbeddedParts | None = None
    ) -> NDArray[np.float32] | None:
        if self.embed_many is None or first.vectors is None:
            return None
        parts = parts_of(asked) if embedded is None else embedded.parts
        if embedded is not None:
            part_vectors = embedded.vectors
        elif parts.texts:
            part_vectors = await self.embed_many(parts.texts)
        else:
            part_vectors = np.zeros((0, len(vector)), dtype=np.float32)
        try:
            return evidence_of(asked, vector, first, parts, part_vectors)
        except BadVector as error:
            raise EmbedderUnavailable(error.message) from None


class ModelLoader:
    """Loads the models and hands out what is ready; a model that cannot be loaded never stops the gateway.

    `folder` names a trained model; empty = the shipped one. `embed_many` embeds texts in one batch (None: nothing but
    loading is wanted).
    """

    def __init__(self, folder: str, embedder: QueryEmbedder, embed_many: EmbedMany | None) -> None:
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
            self._models = load_models(self._folder, self._embedder, self._embed_many)
            self._error = None
        except Damaged as error:
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


def load_models(folder: Path, embedder: Embedder, embed_many: EmbedMany | None = None) -> LoadedModels:
    """Read an artifact. Raises Damaged.

    With another embedder than the artifact's the decision model is left out, which is logged.
    """
    try:
        artifact = read_artifact(folder)
        encoder = text_encoder_of(artifact)
        return LoadedModels(
            version=artifact.version,
            threshold=_threshold(artifact),
            encode=partial(_encoded, encoder),
            text=text_model_of(artifact, encoder.dimension),
            before=text_model_of(artifact, encoder.dimension, "before") if "before" in artifact.manifest else None,
            decision=_decision(artifact, embedder),
            embed_many=embed_many,
            reference=reference_of(artifact),
        )
    except ClassifierError as error:
        raise Damaged(error.message) from None


async def _encoded(encoder: TextEncoder, asked: str) -> NDArray[np.float32]:
    """Encode off the event loop: it computes for a millisecond or two."""
    vectors = await asyncio.to_thread(encoder.encode, [asked])
    encoded: NDArray[np.float32] = vectors[0]
    return encoded


def check_model(folder: Path) -> None:
    """Raise Damaged where a folder holds no routing model that can be used."""
    try:
        embedder = read_artifact(folder).embedder
    except ClassifierError as error:
        raise Damaged(error.message) from None
    load_models(folder, embedder)


def _decision(artifact: Artifact, embedder: Embedder) -> DecisionModel | None:
    model = decision_model_of(artifact)
    if artifact.embedder == embedder:
        return model
    _log.warning(
        "the routing model knows first looks through another embedder alone; questions are routed by their text",
        model=artifact.version,
        trained_with=artifact.embedder.id,
        configured=embedder.id,
    )
    return None


def _threshold(artifact: Artifact) -> float:
    threshold = artifact.manifest.get("threshold")
    if not isinstance(threshold, int | float) or not 0.0 <= threshold <= 1.0:
        raise ArtifactDamaged(f"{artifact.folder}: threshold {threshold!r} is no number from 0 to 1")
    return float(threshold)
