"""The first look: a question, its parts, and the candidates of one search, as plain arrays and strings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.errors import BadVector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

SHOWN = 5
"""Passages of a single-shot answer: whatever needed document has no chunk among them is missing from its evidence."""
CANDIDATES = 20
"""Candidates that are looked at."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one search brought for a question; candidates best first, at most CANDIDATES.

    `vector` is the question's embedding (d,), `vectors` (n, d) the candidates', `scores` (n,) their fused scores (0-1),
    `lexical` (n,) their BM25 scores (0 where the lexical leg did not return them). `documents` names each candidate's
    document. `term_idf` maps each lexeme of the question to its inverse document frequency over `corpus_size` passages.
    `piece_texts` are classifier.evidence.pieces.pieces_of(question), `pieces` (p, d) their embeddings, `words` (w, d)
    those of words_of(question).
    """

    question: str
    vector: NDArray[np.float32]
    documents: Sequence[str]
    titles: Sequence[str]
    texts: Sequence[str]
    scores: NDArray[np.float32]
    lexical: NDArray[np.float32]
    vectors: NDArray[np.float32]
    term_idf: Mapping[str, float]
    corpus_size: int
    piece_texts: Sequence[str]
    pieces: NDArray[np.float32]
    words: NDArray[np.float32]


def checked(look: Look) -> Look:
    """Return the look, cut to CANDIDATES, its arrays float32. Raises BadVector for a wrong shape or number."""
    count = len(look.documents)
    dimension = len(look.vector)
    arrays = {
        "vector": (look.vector, (dimension,)),
        "scores": (look.scores, (count,)),
        "lexical": (look.lexical, (count,)),
        "vectors": (look.vectors, (count, dimension)),
        "pieces": (look.pieces, (len(look.pieces), dimension)),
        "words": (look.words, (len(look.words), dimension)),
    }
    cut: dict[str, NDArray[np.float32]] = {}
    for name, (array, shape) in arrays.items():
        if array.shape != shape and array.size:
            raise BadVector(f"the first look's {name} has shape {array.shape}, not {shape}")
        numbers = np.asarray(array, dtype=np.float32).reshape(shape)
        if not math.isfinite(numbers.sum()):  # a number that is not finite makes the sum so
            raise BadVector(f"the first look's {name} holds a number that is not finite")
        cut[name] = numbers[:CANDIDATES] if name in {"scores", "lexical", "vectors"} else numbers
    return Look(
        question=look.question,
        documents=look.documents[:CANDIDATES],
        titles=look.titles[:CANDIDATES],
        texts=look.texts[:CANDIDATES],
        term_idf=look.term_idf,
        corpus_size=look.corpus_size,
        piece_texts=look.piece_texts,
        **cut,
    )
