"""Chunks in the window of the shipped embedder, counted by its own tokenizer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standard.corpus.chunking import Chunking, chunk_document
from standard.embedding.artifact import read_artifact
from standard.embedding.builtin import BuiltinEmbedder
from standard.embedding.protocol import PassageInput

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = {
    "latin": "The quick brown fox jumps over the lazy dog, and nobody knows why. ",
    "german": "Die Donaudampfschifffahrtsgesellschaftskapitänsmütze liegt im Schrank. ",
    "greek": "Η γρήγορη αλεπού πηδάει πάνω από τον τεμπέλη σκύλο. ",
    "russian": "Быстрая лиса перепрыгивает через ленивую собаку. ",
    "arabic": "الثعلب البني السريع يقفز فوق الكلب الكسول. ",
    "hindi": "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर से कूदती है। ",
    "japanese": "素早い茶色の狐がのろまな犬を飛び越える。",
    "thai": "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ",
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈👍🏽 ",
    "code": "def f(x): return {'a': [x ** 2 for _ in range(10)], \"b\": x != 3}\n",
    "numbers": "1234567890 3.14159 2026-01-31T12:00:00Z 0xDEADBEEF ",
    "blob": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo",
}


@pytest.fixture(scope="module")
def embedder() -> Iterator[BuiltinEmbedder]:
    opened = BuiltinEmbedder(read_artifact(), ingest_threads=1)
    yield opened
    asyncio.run(opened.close())


@pytest.mark.parametrize("script", SCRIPTS)
async def test_nothing_is_cut_by_the_shipped_embedder(embedder: BuiltinEmbedder, script: str) -> None:
    text = SCRIPTS[script] * 60
    for sizes in (Chunking(), Chunking(target_tokens=1000)):
        chunks = chunk_document(
            "A title", text, count_tokens=embedder.count_tokens, max_tokens=embedder.max_tokens, chunking=sizes
        )
        assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(text.split())
        assert all(embedder.count_tokens([chunk.embedded])[0] <= embedder.max_tokens for chunk in chunks)
    vectors = await embedder.embed_passages(
        [PassageInput(chunk.embedded, chunk.embedded_sentences) for chunk in chunks[:2]]
    )
    assert [len(rows) for rows in vectors.sentence_vectors] == [len(chunk.sentences) for chunk in chunks[:2]]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=3000), st.text(max_size=400))
def test_any_text_fits_the_shipped_window(embedder: BuiltinEmbedder, text: str, title: str) -> None:
    for chunk in chunk_document(title, text, count_tokens=embedder.count_tokens, max_tokens=embedder.max_tokens):
        assert embedder.count_tokens([chunk.embedded]) == [chunk.token_count]
        assert chunk.token_count <= embedder.max_tokens
