"""Any sentence-transformers model as an embedder, on the official MiniLM from a folder."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from standard.domain.errors import EmbedderUnavailable, InvalidInput
from standard.embedding.config import EmbeddingConfig
from standard.embedding.factory import open_embedder
from standard.embedding.protocol import Embedder, PassageInput, TextTooLong
from standard.embedding.transformer import TransformerEmbedder
from tests.models.golden import golden_texts, reference_vectors

pytestmark = pytest.mark.models


@pytest_asyncio.fixture
async def embedder(official_folder: Path) -> AsyncIterator[Embedder]:
    async with open_embedder(EmbeddingConfig(model=str(official_folder))) as opened:
        yield opened


async def test_questions_and_passages_have_the_models_vectors(embedder: Embedder, official_folder: Path) -> None:
    texts = golden_texts()["english"]
    expected = reference_vectors(str(official_folder), texts)
    assert (embedder.dimensions, embedder.max_tokens) == (384, 256)
    assert np.abs(await embedder.embed_queries(texts) - expected).max() < 1e-4
    passages = await embedder.embed_passages([PassageInput(text, ((0, len(text)),)) for text in texts])
    assert np.abs(passages.vectors - expected).max() < 1e-4
    for vector, sentences in zip(passages.vectors, passages.sentence_vectors, strict=True):
        assert np.abs(sentences[0] - vector).max() < 1e-6


async def test_a_long_question_is_encoded_in_windows_and_a_long_passage_refused(embedder: Embedder) -> None:
    long = " ".join(f"Clause {number} covers storage in hall {number + 3}." for number in range(100))
    tail = (await embedder.embed_queries([long[-800:]]))[0]
    whole = (await embedder.embed_queries([long + " The zebra ate bananas in Brazil." * 40]))[0]
    assert np.linalg.norm(whole) == pytest.approx(1, abs=1e-5)
    assert 0.3 < whole @ tail < 0.95
    with pytest.raises(TextTooLong):
        await embedder.embed_passages([PassageInput(long)])


async def test_odd_text_is_treated_as_everywhere(embedder: Embedder) -> None:
    with pytest.raises(InvalidInput, match="blank"):
        await embedder.embed_queries(["\n"])
    vectors = await embedder.embed_queries(["keys\x00 and\ud800 doors", "keys\ufffd and\ufffd doors"])
    assert vectors[0] == pytest.approx(vectors[1])
    assert (await embedder.embed_queries([])).shape == (0, 384)


async def test_prompts_of_the_model_are_used_and_counted(official_folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(official_folder), prompts={"query": "query: ", "document": "passage: "})
    model.save(str(tmp_path / "prompted"))
    async with open_embedder(EmbeddingConfig(model=str(tmp_path / "prompted"))) as prompted:
        question = await prompted.embed_queries(["who holds the keys"])
        passage = await prompted.embed_passages([PassageInput("who holds the keys")])
        assert prompted.count_tokens(["keys"]) == [5]
        expected = reference_vectors(str(official_folder), ["query: who holds the keys", "passage: who holds the keys"])
        assert np.abs(question[0] - expected[0]).max() < 1e-4
        assert np.abs(passage.vectors[0] - expected[1]).max() < 1e-4
        assert prompted.id == "prompted"


async def test_the_checksum_follows_the_weights_not_the_place(official_folder: Path, tmp_path: Path) -> None:
    import torch

    here = TransformerEmbedder(str(official_folder))
    copied = tmp_path / official_folder.name
    shutil.copytree(official_folder, copied)
    there = TransformerEmbedder(str(copied))
    assert (here.id, here.checksum) == (there.id, there.checksum)
    with torch.no_grad():
        next(iter(there._model.parameters()))[0, 0] += 1
    there._model.save(str(tmp_path / "changed"))
    changed = TransformerEmbedder(str(tmp_path / "changed"))
    assert changed.checksum != here.checksum
    for opened in (here, there, changed):
        await opened.close()


async def test_counting_in_other_threads_while_questions_are_encoded_is_safe(embedder: Embedder) -> None:
    texts = golden_texts()["english"]
    expected = embedder.count_tokens(texts)

    async def count() -> list[int]:
        return await asyncio.to_thread(embedder.count_tokens, texts)

    counts = await asyncio.gather(*(count() for _ in range(20)), embedder.embed_queries(texts))
    assert counts[:20] == [expected] * 20


async def test_a_model_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EmbedderUnavailable, match="nothing-here"):
        async with open_embedder(EmbeddingConfig(model=str(tmp_path / "nothing-here"))):
            pass
