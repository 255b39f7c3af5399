"""Evidence features: whatever the look, finite, bounded, repeatable; and pointing the way their names say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from classifier.errors import BadVector
from classifier.evidence.features import evidence_features
from classifier.evidence.look import CANDIDATES, Look, checked
from classifier.evidence.names import NAMES
from classifier.evidence.pieces import MAX_PIECES, MAX_WORDS, pieces_of, words_of
from tests.unit.classifier.plain_evidence import plain_features

DIMENSION = 8


def unit(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    vectors = rng.normal(size=shape).astype(np.float32)
    lengths: NDArray[np.float32] = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / lengths).astype(np.float32)


def look(
    seed: int = 0,
    *,
    count: int = 20,
    question: str = "Who signs for the pump that failed in March?",
    texts: list[str] | None = None,
    documents: list[str] | None = None,
    term_idf: dict[str, float] | None = None,
) -> Look:
    rng = np.random.default_rng(seed)
    return Look(
        question=question,
        vector=unit(rng, DIMENSION),
        documents=documents or [f"d{rng.integers(6)}" for _ in range(count)],
        titles=[f"Title {place}" for place in range(count)],
        texts=texts or [f"text about pump number {place}" for place in range(count)],
        scores=np.sort(rng.random(count).astype(np.float32))[::-1].copy(),
        lexical=(rng.random(count) * 9).astype(np.float32),
        vectors=unit(rng, count, DIMENSION),
        term_idf={"sign": 2.0, "pump": 3.0, "fail": 4.0, "march": 5.0} if term_idf is None else term_idf,
        corpus_size=500,
        piece_texts=pieces_of(question),
        pieces=unit(rng, int(rng.integers(0, 5)), DIMENSION),
        words=unit(rng, int(rng.integers(0, 7)), DIMENSION),
    )


def value(features: NDArray[np.float32], name: str) -> float:
    return float(features[NAMES.index(name)])


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 30),
    st.text(max_size=120),
    st.dictionaries(st.text(min_size=1, max_size=8), st.floats(0.0, 12.0), max_size=12),
)
def test_features_are_finite_bounded_and_repeatable(
    seed: int, count: int, question: str, term_idf: dict[str, float]
) -> None:
    seen = checked(look(seed, count=count, question=question, term_idf=term_idf))
    features = evidence_features(seen)
    assert features.shape == (len(NAMES),)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()
    assert (np.abs(features) <= 8.0).all()
    assert np.array_equal(features, evidence_features(seen))


_WORDS = ["pump", "pumps", "march", "signing", "fail", "bilge", "harbour", "the", "spare", "failed", "unmarched", "x"]


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 30),
    st.lists(st.sampled_from([*_WORDS, "and", "which", "of", ","]), min_size=1, max_size=25).map(" ".join),
    st.dictionaries(st.sampled_from([*_WORDS, "zeppelin", "fli"]), st.floats(0.0, 12.0), max_size=12),
)
def test_features_are_those_of_their_plain_definition(
    seed: int, count: int, question: str, term_idf: dict[str, float]
) -> None:
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(_WORDS, 12)) for _ in range(count)]
    seen = checked(look(seed, count=count, question=question, texts=texts, term_idf=term_idf))
    plain = plain_features(seen)
    served = evidence_features(seen)
    assert dict(zip(NAMES, served, strict=True)) == pytest.approx(dict(zip(NAMES, plain, strict=True)), abs=2e-4)


@given(st.integers(0, 2**32 - 1))
def test_zero_vectors_and_equal_scores_are_no_error(seed: int) -> None:
    seen = look(seed)
    flat = replace(
        seen,
        vector=np.zeros_like(seen.vector),
        vectors=np.zeros_like(seen.vectors),
        scores=np.ones_like(seen.scores),
        lexical=np.zeros_like(seen.lexical),
    )
    assert np.isfinite(evidence_features(checked(flat))).all()


def test_an_empty_corpus_looks_insufficient() -> None:
    features = evidence_features(checked(look(count=0)))
    assert value(features, "unseen") == 1.0


def test_candidates_beyond_the_limit_are_not_read() -> None:
    assert len(checked(look(count=30)).documents) == CANDIDATES


@pytest.mark.parametrize("field", ["vector", "scores", "lexical", "vectors", "pieces"])
def test_numbers_that_are_not_finite_are_refused_by_name(field: str) -> None:
    seen = look(2)
    broken = getattr(seen, field).copy()
    assert broken.size
    broken.flat[0] = np.nan
    with pytest.raises(BadVector, match=field):
        checked(replace(seen, **{field: broken}))


def test_shapes_that_do_not_fit_are_refused() -> None:
    seen = look(1)
    with pytest.raises(BadVector, match="scores"):
        checked(replace(seen, scores=seen.scores[:-1]))


def test_coverage_sees_what_no_single_document_holds() -> None:
    apart = look(
        count=2,
        documents=["a", "b"],
        texts=["the pump signs", "what failed in march"],
    )
    together = replace(apart, documents=["a", "a"])
    assert value(evidence_features(apart), "gain_documents") > 0.3
    assert value(evidence_features(together), "gain_documents") == pytest.approx(0.0, abs=1e-6)


def test_parts_at_home_in_different_documents_are_counted() -> None:
    axes = np.eye(DIMENSION, dtype=np.float32)
    seen = replace(
        look(count=2, documents=["a", "b"]),
        vector=(axes[0] + axes[1]) / np.float32(np.sqrt(2.0)),
        vectors=axes[:2],
        pieces=axes[:2],
        words=axes[:1],
    )
    features = evidence_features(checked(seen))
    assert value(features, "piece_homes") == 2.0
    assert value(features, "piece_loss_most") == pytest.approx(1.0)
    assert value(features, "word_homes") == 1.0


def test_a_stem_is_found_at_the_beginning_of_words_only() -> None:
    seen = look(count=1, documents=["a"], texts=["companies overcompany"], term_idf={"compani": 3.0, "pany": 2.0})
    assert value(evidence_features(seen), "covered_first") == pytest.approx(0.6)


def test_a_question_is_split_into_clauses_phrases_and_words() -> None:
    pieces = pieces_of("What's the capacity of the car that won the Red Dot prize?")
    assert "won the Red Dot prize" in pieces
    assert "the car" in pieces
    assert words_of("What's the capacity of the car?") == ["what's", "capacity", "car"]


@given(st.text(max_size=300))
def test_parts_are_bounded_distinct_and_never_blank(question: str) -> None:
    pieces, words = pieces_of(question), words_of(question)
    assert len(pieces) <= MAX_PIECES
    assert len(words) <= MAX_WORDS
    assert len(set(pieces)) == len(pieces)
    assert len(set(words)) == len(words)
    assert all(part.strip() for part in [*pieces, *words])


def test_a_hundred_kilobytes_of_question_are_split_quickly() -> None:
    assert len(pieces_of("the goat that ate the form of the vet in March, " * 2100)) <= MAX_PIECES
