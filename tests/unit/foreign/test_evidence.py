"""Vectors of the gateway's own for what another model found: made once a text, bounded, in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest

from standard.domain.passage import RetrievedPassage
from standard.foreign.evidence import EvidenceVectors
from tests.support.memory_retriever import embed, embed_text, passage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Counting:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        return await embed(texts)


def found(*texts: str) -> list[RetrievedPassage]:
    return [RetrievedPassage(passage(f"d{number}", text), 0.5) for number, text in enumerate(texts)]


async def test_each_text_is_embedded_once_and_vectors_keep_the_order() -> None:
    counting = Counting()
    vectors = EvidenceVectors(counting)
    first = await vectors.of(found("a pump", "a valve", "a pump"))
    again = await vectors.of(found("a valve", "a crane"))
    assert counting.asked == [["a pump", "a valve"], ["a crane"]]
    assert first is not None
    assert again is not None
    expected = np.stack([embed_text(text) for text in ("a pump", "a valve", "a pump")])
    assert np.einsum("ij,ij->i", first, expected) == pytest.approx(1.0, abs=1e-3)
    assert np.array_equal(first[1], again[0])


async def test_no_more_than_the_bound_is_remembered() -> None:
    vectors = EvidenceVectors(Counting(), most=3)
    await asyncio.gather(*(vectors.of(found(f"text {number}")) for number in range(10)))
    assert len(vectors) == 3


async def test_nothing_and_blank_text_have_no_vectors() -> None:
    counting = Counting()
    vectors = EvidenceVectors(counting)
    assert await vectors.of([]) is None
    assert await vectors.of(found("a pump", "  ")) is None
    assert counting.asked == []
