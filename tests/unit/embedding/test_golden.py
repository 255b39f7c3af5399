"""The shipped model agrees with sentence-transformers in fp32, whose vectors lie in golden.npz (see tests.models)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from standard.embedding.artifact import read_artifact
from standard.embedding.builtin import BuiltinEmbedder
from standard.embedding.protocol import PassageInput

HERE = Path(__file__).parent
TEXTS: dict[str, list[str]] = json.loads((HERE / "golden.json").read_text(encoding="utf-8"))


def golden(group: str) -> NDArray[np.float32]:
    with np.load(HERE / "golden.npz", allow_pickle=False) as arrays:
        vectors: NDArray[np.float32] = arrays[group]
        return vectors


@pytest_asyncio.fixture
async def embedder() -> AsyncIterator[BuiltinEmbedder]:
    opened = BuiltinEmbedder(read_artifact())
    try:
        yield opened
    finally:
        await opened.close()


# One or two words leave the rounding of single tokens nothing to average out with.
@pytest.mark.parametrize(("group", "least"), [("english", 0.99), ("other", 0.985), ("fragments", 0.96)])
async def test_questions_have_the_vectors_of_the_fp32_model(
    embedder: BuiltinEmbedder, group: str, least: float
) -> None:
    cosines = np.einsum("ij,ij->i", await embedder.embed_queries(TEXTS[group]), golden(group))
    assert cosines.min() >= least, dict(zip(TEXTS[group], cosines, strict=True))


async def test_passages_have_the_vectors_of_the_fp32_model(embedder: BuiltinEmbedder) -> None:
    vectors = (await embedder.embed_passages([PassageInput(text) for text in TEXTS["english"]])).vectors
    assert np.einsum("ij,ij->i", vectors, golden("english")).min() >= 0.99


async def test_each_text_is_nearest_to_its_own_golden_vector(embedder: BuiltinEmbedder) -> None:
    texts = [text for group in TEXTS.values() for text in group]
    everything = np.concatenate([golden(group) for group in TEXTS])
    nearest = (await embedder.embed_queries(texts) @ everything.T).argmax(axis=1)
    assert nearest.tolist() == list(range(len(texts)))


async def test_similarities_between_texts_are_those_of_the_fp32_model(embedder: BuiltinEmbedder) -> None:
    ours = await embedder.embed_queries(TEXTS["english"])
    assert np.abs(ours @ ours.T - golden("english") @ golden("english").T).max() < 0.05
