"""What the first retrieval shows, as plain arrays and strings: the input of evidence features.

The classifier takes no types of ours, so the composition root hands it the fields of this record. No model here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

    from standard.domain.passage import SearchResult

UNRANKED = -1
"""The rank of a candidate that a leg did not return."""


@dataclass(frozen=True, slots=True)
class FirstLook:
    """A question and the n candidates of its first retrieval, best first (n <= 20).

    `question_vector` (d,) and `vectors` (n, d) are float32, L2-normalised to half precision; `vectors` is None where
    the retriever gives none. `scores` (n,) are fused, 0-1. `dense_scores` are cosine similarities, `lexical_scores` are
    BM25 (>= 0): (n,) float32, NaN where that leg did not return the candidate; ranks (n,) int32 from 0, else UNRANKED.
    `positions` count chunks of a document from 0. `term_idf` maps each lexeme of the question to its inverse document
    frequency over the `corpus_size` passages of the collection. Texts and titles are untrusted and for counting only.
    """

    question: str
    question_vector: NDArray[np.float32]
    document_ids: tuple[str, ...]
    positions: NDArray[np.int32]
    titles: tuple[str, ...]
    texts: tuple[str, ...]
    scores: NDArray[np.float32]
    dense_scores: NDArray[np.float32]
    dense_ranks: NDArray[np.int32]
    lexical_scores: NDArray[np.float32]
    lexical_ranks: NDArray[np.int32]
    vectors: NDArray[np.float32] | None
    term_idf: Mapping[str, float]
    corpus_size: int


def first_look(question: str, question_vector: NDArray[np.float32], result: SearchResult) -> FirstLook:
    """Lay out the candidates of a search (its passages where it kept no candidates)."""
    found = result.candidates or result.passages
    vectors = result.vectors if result.vectors is not None and len(result.vectors) == len(found) else None
    return FirstLook(
        question=question,
        question_vector=question_vector,
        document_ids=tuple(item.passage.document_id for item in found),
        positions=np.array([item.passage.position for item in found], np.int32),
        titles=tuple(item.passage.title.raw for item in found),
        texts=tuple(item.passage.text.raw for item in found),
        scores=np.array([item.score for item in found], np.float32),
        dense_scores=_scores([item.dense_score for item in found]),
        dense_ranks=_ranks([item.dense_rank for item in found]),
        lexical_scores=_scores([item.lexical_score for item in found]),
        lexical_ranks=_ranks([item.lexical_rank for item in found]),
        vectors=vectors,
        term_idf=result.term_idf,
        corpus_size=result.corpus_size,
    )


def _scores(values: list[float | None]) -> NDArray[np.float32]:
    return np.array([np.nan if value is None else value for value in values], np.float32)


def _ranks(values: list[int | None]) -> NDArray[np.int32]:
    return np.array([UNRANKED if value is None else value for value in values], np.int32)
