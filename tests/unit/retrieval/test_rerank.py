"""Reranking the head of a search."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from standard.domain.errors import DatabaseUnavailable, FailedPrecondition
from standard.domain.passage import Passage, RetrievedPassage, Retriever, Scope, SearchResult
from standard.domain.text import UntrustedText
from standard.retrieval.rerank import CrossEncoderScorer, RerankingRetriever

VECTOR = np.zeros(2, np.float32)


def found(number: int) -> RetrievedPassage:
    passage = Passage(f"d#{number}", "d", UntrustedText("T"), "", UntrustedText(f"text {number}"), number, "hash")
    return RetrievedPassage(passage, 1.0 - number / 100)


class Shelf:
    """Returns the same passages in the same order, however many are asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def search(
        self,
        scope: Scope,
        text: str,
        vector: NDArray[np.float32],
        *,
        k: int,
        exclude: frozenset[str] = frozenset(),
    ) -> SearchResult:
        del scope, text, vector, exclude
        self.asked.append(k)
        items = tuple(found(number) for number in range(30))
        return SearchResult(items[:k], items[:20])

    async def search_many(
        self, scope: Scope, texts: Sequence[str], vectors: NDArray[np.float32], *, k: int
    ) -> list[SearchResult]:
        return [await self.search(scope, text, vector, k=k) for text, vector in zip(texts, vectors, strict=True)]


async def by_number(question: str, passages: Sequence[str]) -> list[float]:
    return [float(passage.split()[-1]) for passage in passages]


def numbers(result: SearchResult) -> list[int]:
    return [item.passage.position for item in result.passages]


async def test_the_scorer_orders_passages_and_leaves_candidates_alone() -> None:
    shelf = Shelf()
    retriever: Retriever = RerankingRetriever(shelf, by_number, depth=10)
    result = await retriever.search(Scope(), "q", VECTOR, k=3)
    assert shelf.asked == [10]
    assert numbers(result) == [9, 8, 7]
    assert [item.rerank_score for item in result.passages] == [9.0, 8.0, 7.0]
    assert [item.passage.position for item in result.candidates] == list(range(20))
    assert result.seconds.rerank > 0.0
    both = await retriever.search_many(Scope(), ["a", "b"], np.stack([VECTOR, VECTOR]), k=2)
    assert [numbers(result) for result in both] == [[9, 8], [9, 8]]


async def test_more_than_the_depth_may_be_asked_for() -> None:
    result = await RerankingRetriever(Shelf(), by_number, depth=5).search(Scope(), "q", VECTOR, k=12)
    assert numbers(result) == list(range(11, -1, -1))


async def slow(question: str, passages: Sequence[str]) -> list[float]:
    await asyncio.sleep(60)
    return []


async def broken(question: str, passages: Sequence[str]) -> list[float]:
    raise RuntimeError("no model")


@pytest.mark.parametrize("scorer", [slow, broken])
async def test_a_scorer_that_fails_leaves_the_fused_order(scorer: object) -> None:
    retriever = RerankingRetriever(Shelf(), scorer, timeout_seconds=0.02)  # type: ignore[arg-type]
    result = await retriever.search(Scope(), "q", VECTOR, k=3)
    assert numbers(result) == [0, 1, 2]
    assert result.passages[0].rerank_score is None


async def test_what_the_search_raises_is_raised() -> None:
    class Gone(Shelf):
        async def search(self, *args: object, **more: object) -> SearchResult:
            del args, more
            raise DatabaseUnavailable("gone")

    with pytest.raises(DatabaseUnavailable):
        await RerankingRetriever(Gone(), by_number).search(Scope(), "q", VECTOR, k=3)


def test_without_the_extra_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(FailedPrecondition, match=r"pointsman\[models\]"):
        CrossEncoderScorer("some/model")


@pytest.mark.models
async def test_a_real_cross_encoder_scores_pairs(tmp_path: Path) -> None:
    transformers: Any = importlib.import_module("transformers")
    folder = tmp_path / "tiny"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "green", "blue", "text"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=1,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    scorer = CrossEncoderScorer(str(folder), threads=1)
    try:
        scores = await scorer("red", ["green text", "blue text", "red text"])
        assert len(scores) == 3
        assert scores == pytest.approx(
            [(await scorer("red", [text]))[0] for text in ("green text", "blue text", "red text")], abs=1e-5
        )
        assert await scorer("red", []) == []
    finally:
        await scorer.close()
