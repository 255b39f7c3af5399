"""The shipped model against the official one in sentence-transformers: vectors, recall, and how it is made."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from standard.embedding.artifact import FOLDER, read_artifact
from standard.embedding.builtin import BuiltinEmbedder
from standard.embedding.config import EmbeddingConfig
from standard.embedding.factory import open_embedder
from standard.embedding.protocol import Embedder, PassageInput
from tests.models.golden import golden_texts, reference_vectors

pytestmark = pytest.mark.models


@pytest_asyncio.fixture
async def embedder() -> AsyncIterator[Embedder]:
    async with open_embedder() as opened:
        yield opened


def test_the_golden_vectors_are_what_sentence_transformers_computes(official_folder: Path) -> None:
    with np.load(Path(__file__).parent.parent / "unit" / "embedding" / "golden.npz", allow_pickle=False) as golden:
        for group, texts in golden_texts().items():
            assert np.abs(reference_vectors(str(official_folder), texts) - golden[group]).max() < 1e-4


def small_corpus() -> tuple[list[str], list[tuple[str, int]]]:
    """336 passages on who does what where, and 120 questions, each with the number of its passage."""
    pick = random.Random(7)
    places = ["harbour depot", "north warehouse", "paint shop", "boiler house", "ferry terminal", "archive", "canteen"]
    things = ["forklift", "fire door", "pressure valve", "cold store", "crane", "backup generator", "gate", "scale"]
    people = ["Abara", "Nilsen", "Quint", "Moreau", "Tanaka", "Okoye", "Lindgren", "Petrov", "Silva", "Haddad"]
    asked = {
        "inspects": "checks", "repairs": "fixes", "orders parts for": "buys spare parts for",
        "keeps the log of": "writes the records of", "approves changes to": "signs off changes to", "cleans": "washes",
    }  # fmt: skip
    rows = [(place, thing, act) for place in places for thing in things for act in asked]
    passages = [
        f"At the {place}, {pick.choice(people)} {act} the {thing} every {pick.choice(['week', 'month', 'quarter'])}. "
        f"Notes go to {pick.choice(people)} in the office."
        for place, thing, act in rows
    ]
    questions = [
        (f"Who {asked[act]} the {thing} in the {place}?", number) for number, (place, thing, act) in enumerate(rows)
    ]
    return passages, pick.sample(questions, 120)


@pytest.mark.timeout(900)
async def test_recall_is_that_of_the_fp32_model(embedder: Embedder, official_folder: Path) -> None:
    passages, asked = small_corpus()
    questions, gold = [question for question, _ in asked], np.array([number for _, number in asked])

    def recall(of_questions: NDArray[np.float32], of_passages: NDArray[np.float32]) -> float:
        top = np.argsort(-(of_questions @ of_passages.T), axis=1)[:, :1]
        return float((top == gold[:, None]).any(axis=1).mean())

    theirs = recall(*(reference_vectors(str(official_folder), texts) for texts in (questions, passages)))
    ours = recall(
        await embedder.embed_queries(questions),
        (await embedder.embed_passages([PassageInput(text) for text in passages])).vectors,
    )
    assert 0.3 < theirs < 1.0, "the corpus tells good models from bad ones"
    assert abs(ours - theirs) <= 0.04, (ours, theirs)


async def test_tokens_are_counted_as_the_official_tokenizer_does(embedder: Embedder, official_folder: Path) -> None:
    texts = [text for group in golden_texts().values() for text in group] + ["", "\x00 \ufffd", "é" * 300]
    async with open_embedder(EmbeddingConfig(model=str(official_folder))) as official:
        assert embedder.count_tokens(texts) == official.count_tokens(texts)
        assert embedder.max_tokens == official.max_tokens == 256


async def test_the_script_makes_the_shipped_model(official_folder: Path, tmp_path: Path) -> None:
    from standard.embedding.export.__main__ import main

    main([str(official_folder), "--output", str(tmp_path)])
    made, shipped = (
        json.loads((tmp_path / "manifest.json").read_bytes()),
        json.loads((FOLDER / "manifest.json").read_bytes()),
    )
    for manifest in (made, shipped):
        manifest["files"].pop("model.onnx")  # another processor's float sums may differ in their last bits
    assert made == shipped
    texts = [text for group in golden_texts().values() for text in group]
    vectors = []
    for folder in (tmp_path, FOLDER):
        opened = BuiltinEmbedder(read_artifact(folder))
        vectors.append(await opened.embed_queries(texts))
        await opened.close()
    assert np.einsum("ij,ij->i", *vectors).min() > 0.999


def test_weights_that_are_not_the_official_ones_are_refused(official_folder: Path, tmp_path: Path) -> None:
    from standard.embedding.export.__main__ import main

    data = bytearray((official_folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(SystemExit, match="official file has 53aa5117"):
        main([str(tmp_path), "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
