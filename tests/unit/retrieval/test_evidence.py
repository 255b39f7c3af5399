"""The record that evidence features read."""

from __future__ import annotations

import numpy as np

from standard.domain.passage import Passage, RetrievedPassage, SearchResult
from standard.domain.text import UntrustedText
from standard.retrieval.evidence import UNRANKED, first_look


def found(number: int, **scores: float | None) -> RetrievedPassage:
    passage = Passage(f"d#{number}", "d", UntrustedText("Title"), "", UntrustedText(f"text {number}"), number, "hash")
    return RetrievedPassage(passage, 0.5, **scores)  # type: ignore[arg-type]


def test_candidates_become_parallel_arrays() -> None:
    both = found(0, dense_score=0.9, dense_rank=0, lexical_score=7.0, lexical_rank=1)
    vectors = np.eye(2, dtype=np.float32)
    result = SearchResult((both,), (both, found(3)), {"word": 1.5}, 10, vectors)
    look = first_look("a question", vectors[0], result)
    assert look.document_ids == ("d", "d")
    assert look.texts == ("text 0", "text 3")
    assert look.titles == ("Title", "Title")
    assert look.positions.tolist() == [0, 3]
    assert look.dense_ranks.tolist() == [0, UNRANKED]
    assert look.lexical_ranks.tolist() == [1, UNRANKED]
    assert look.dense_scores[0] == np.float32(0.9)
    assert np.isnan(look.dense_scores[1])
    assert np.isnan(look.lexical_scores[1])
    assert look.vectors is vectors
    assert (look.term_idf, look.corpus_size, look.question) == ({"word": 1.5}, 10, "a question")


def test_a_retriever_without_candidates_still_shows_its_passages() -> None:
    look = first_look("q", np.zeros(2, np.float32), SearchResult((found(0),)))
    assert look.document_ids == ("d",)
    assert look.vectors is None


def test_nothing_found_is_an_empty_record() -> None:
    look = first_look("q", np.zeros(2, np.float32), SearchResult(()))
    assert look.scores.shape == (0,)
    assert look.document_ids == ()
