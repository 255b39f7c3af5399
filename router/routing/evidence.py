"""From a question and its first search to the evidence features: between retriever, embedder and classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.evidence.features import evidence_features
from classifier.evidence.look import CANDIDATES, Look, checked
from classifier.evidence.pieces import pieces_of, words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from standard.domain.passage import SearchResult


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a question that are embedded beside it, in one batch."""

    pieces: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them, pieces first."""
        return self.pieces + self.words


@dataclass(frozen=True, slots=True)
class EmbeddedParts:
    """Parts of a question with their vectors (parts, d), in the order of `parts.texts`."""

    parts: Parts
    vectors: NDArray[np.float32]


def parts_of(question: str) -> Parts:
    """Return the question's parts; none where it has no words."""
    return Parts(tuple(pieces_of(question)), tuple(words_of(question)))


def evidence_of(
    question: str,
    vector: NDArray[np.float32],
    found: SearchResult,
    parts: Parts,
    part_vectors: NDArray[np.float32],
) -> NDArray[np.float32] | None:
    """Return the evidence features, or None where the retriever gave no vectors to compute them from.

    `vector` (d,) is the question's embedding, `part_vectors` (parts, d) those of `parts.texts`. Raises BadVector.
    """
    seen = (found.candidates or found.passages)[:CANDIDATES]
    if found.vectors is None or len(found.vectors) < len(seen):
        return None
    return evidence_features(
        checked(
            Look(
                question=question,
                vector=vector,
                documents=[item.passage.document_id for item in seen],
                titles=[item.passage.title.raw for item in seen],
                texts=[item.passage.text.raw for item in seen],
                scores=np.array([item.score for item in seen], np.float32),
                lexical=np.array([item.lexical_score or 0.0 for item in seen], np.float32),
                vectors=found.vectors[: len(seen)],
                term_idf=found.term_idf,
                corpus_size=found.corpus_size,
                piece_texts=parts.pieces,
                pieces=part_vectors[: len(parts.pieces)],
                words=part_vectors[len(parts.pieces) :],
            )
        )
    )
