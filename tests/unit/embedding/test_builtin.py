"""The shipped embedder with its real model: any text, any company, any length."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standard.domain.errors import EmbedderUnavailable, InvalidInput
from standard.embedding.artifact import read_artifact
from standard.embedding.builtin import BuiltinEmbedder
from standard.embedding.protocol import MAX_QUERY_CHARS, PassageInput, TextTooLong

LONG = " ".join(f"Clause {number} covers the storage of goods in hall {number + 3}." for number in range(150))


@pytest.fixture(scope="module")
def embedder() -> Iterator[BuiltinEmbedder]:
    opened = BuiltinEmbedder(read_artifact())
    yield opened
    asyncio.run(opened.close())


async def test_vectors_are_unit_length_float32(embedder: BuiltinEmbedder) -> None:
    vectors = await embedder.embed_queries(["Who holds the keys?", "x"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (2, embedder.dimensions)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1], abs=1e-5)


async def test_no_texts_give_no_vectors(embedder: BuiltinEmbedder) -> None:
    assert (await embedder.embed_queries([])).shape == (0, 384)
    nothing = await embedder.embed_passages([])
    assert nothing.vectors.shape == (0, 384)
    assert nothing.sentence_vectors == ()


async def test_a_text_has_the_same_vector_whatever_it_is_batched_with(embedder: BuiltinEmbedder) -> None:
    texts = [
        "Who holds the keys?",
        "!!! ??? !!!",
        LONG[:700],
        "keys",
        "钥匙在哪里？",
        "Which hall stores paint, and since when?",
    ]
    together = await embedder.embed_queries(texts)
    alone = np.concatenate([await embedder.embed_queries([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-5
    passages = (await embedder.embed_passages([PassageInput(text) for text in texts])).vectors
    assert np.abs(passages - alone).max() < 1e-5


async def test_a_long_question_is_the_mean_of_all_its_windows(embedder: BuiltinEmbedder) -> None:
    assert embedder.count_tokens([LONG])[0] > 5 * embedder.max_tokens
    whole = (await embedder.embed_queries([LONG]))[0]
    head = (await embedder.embed_queries([LONG[:900]]))[0]
    # What stands at the end counts as much as what stands at the beginning.
    changed = (await embedder.embed_queries([LONG[:-1200] + " The zebra ate bananas in Brazil." * 36]))[0]
    assert whole @ head > 0.8
    assert whole @ changed < 0.99


async def test_a_question_that_just_fits_is_not_cut_into_windows(embedder: BuiltinEmbedder) -> None:
    text = " ".join(["storage"] * 254)
    assert embedder.count_tokens([text]) == [256]
    question = await embedder.embed_queries([text])
    passage = (await embedder.embed_passages([PassageInput(text)])).vectors
    assert np.abs(question - passage).max() < 1e-5


async def test_a_passage_beyond_the_window_is_refused_not_cut(embedder: BuiltinEmbedder) -> None:
    fits = PassageInput(" ".join(["storage"] * 254))
    with pytest.raises(TextTooLong) as caught:
        await embedder.embed_passages([fits, PassageInput(fits.text + " x")])
    assert (caught.value.index, caught.value.tokens, caught.value.max_tokens) == (1, 257, 256)
    assert isinstance(caught.value, InvalidInput)


@pytest.mark.parametrize("blank", ["", " ", "\n\t \u2003"])
async def test_blank_text_is_refused(embedder: BuiltinEmbedder, blank: str) -> None:
    with pytest.raises(InvalidInput, match="blank"):
        await embedder.embed_queries(["fine", blank])
    with pytest.raises(InvalidInput, match=r"passages\[1\].text"):
        await embedder.embed_passages([PassageInput("fine"), PassageInput(blank)])


async def test_a_question_beyond_the_bound_is_refused(embedder: BuiltinEmbedder) -> None:
    with pytest.raises(InvalidInput, match=str(MAX_QUERY_CHARS)):
        await embedder.embed_queries(["x" * (MAX_QUERY_CHARS + 1)])


async def test_nul_and_lone_surrogates_count_as_replacement_characters(embedder: BuiltinEmbedder) -> None:
    vectors = await embedder.embed_queries(
        ["who\x00 holds\ud800 the keys\udfff?", "who\ufffd holds\ufffd the keys\ufffd?"]
    )
    assert vectors[0] == pytest.approx(vectors[1])
    assert embedder.count_tokens(["\x00\ud800"]) == [2]


async def test_text_of_control_characters_alone_still_has_a_unit_vector(embedder: BuiltinEmbedder) -> None:
    vector = await embedder.embed_queries(["\x00\x01"])
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("span", [(-1, 3), (2, 2), (3, 2), (0, 99)])
async def test_a_span_outside_its_text_is_refused(embedder: BuiltinEmbedder, span: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match=r"passages\[0\].sentences\[1\]"):
        await embedder.embed_passages([PassageInput("short text", ((0, 5), span))])


async def test_sentences_are_embedded_in_their_passage(embedder: BuiltinEmbedder) -> None:
    parts = ["The ferry leaves at nine. ", "Bees make honey in summer. ", "The invoice was paid twice."]
    text = "".join(parts)
    edges = np.cumsum([0, *map(len, parts)]).tolist()
    spans = tuple(pairwise(edges))
    result = await embedder.embed_passages([PassageInput(text, spans), PassageInput("No sentences here.")])
    assert result.sentence_vectors[0].shape == (3, 384)
    assert result.sentence_vectors[1].shape == (0, 384)
    assert np.linalg.norm(result.sentence_vectors[0], axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    questions = await embedder.embed_queries(["When does the boat depart?", "What do bees do?", "Which bill was paid?"])
    assert (questions @ result.sentence_vectors[0].T).argmax(axis=1).tolist() == [0, 1, 2]


async def test_the_special_tokens_belong_to_the_passage_and_to_no_sentence(embedder: BuiltinEmbedder) -> None:
    result = await embedder.embed_passages([PassageInput("keys", ((0, 4),))])
    assert result.vectors[0] @ result.sentence_vectors[0][0] < 0.99


async def test_sentence_spans_count_code_points_whatever_the_script(embedder: BuiltinEmbedder) -> None:
    plain, odd = "Bees make honey. ", "🙂é\u0301 naïve 钥匙 ﬁne \x00. "
    tail = "The invoice was paid twice."
    text = odd + plain + tail
    spans = ((0, len(odd)), (len(odd), len(odd) + len(plain)), (len(odd) + len(plain), len(text)))
    sentences = (await embedder.embed_passages([PassageInput(text, spans)])).sentence_vectors[0]
    questions = await embedder.embed_queries(["Bees make honey.", "The invoice was paid twice."])
    assert (questions @ sentences.T).argmax(axis=1).tolist() == [1, 2]


async def test_the_event_loop_runs_on_while_passages_are_encoded(embedder: BuiltinEmbedder) -> None:
    passages = [PassageInput(LONG[:800])] * 24
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)

    ticker = asyncio.create_task(tick())
    began = time.perf_counter()
    await embedder.embed_passages(passages)
    whole = time.perf_counter() - began
    ticker.cancel()
    assert longest < whole / 2


async def test_a_question_is_answered_while_an_ingest_runs(embedder: BuiltinEmbedder) -> None:
    ingest = asyncio.create_task(embedder.embed_passages([PassageInput(LONG[:800])] * 60))
    await asyncio.sleep(0.01)
    await embedder.embed_queries(["Who holds the keys?"])
    assert not ingest.done()
    await ingest


async def test_a_cancelled_ingest_stops_after_the_pass_it_is_in(embedder: BuiltinEmbedder) -> None:
    ingest = asyncio.create_task(embedder.embed_passages([PassageInput(LONG[:800])] * 2000))
    await asyncio.sleep(0.3)
    ingest.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ingest
    async with asyncio.timeout(10):  # the 2,000 passages would take a minute
        await embedder.embed_passages([PassageInput("still alive")])


async def test_a_closed_embedder_says_so_to_those_who_wait_and_those_who_come() -> None:
    embedder = BuiltinEmbedder(read_artifact(), ingest_threads=1)
    waiting = asyncio.create_task(embedder.embed_passages([PassageInput(LONG[:800])] * 200))
    await asyncio.sleep(0.1)
    await embedder.close()
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await waiting
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await embedder.embed_queries(["too late"])


async def test_two_threads_a_question_give_the_same_vectors(embedder: BuiltinEmbedder) -> None:
    other = BuiltinEmbedder(read_artifact(), threads=2, ingest_threads=1)
    try:
        texts = ["Who holds the keys?", LONG[:500]]
        assert np.abs(await embedder.embed_queries(texts) - await other.embed_queries(texts)).max() < 1e-5
    finally:
        await other.close()


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(st.characters(), min_size=1, max_size=120), min_size=1, max_size=4))
def test_any_text_has_a_finite_unit_vector_or_is_blank(embedder: BuiltinEmbedder, texts: list[str]) -> None:
    async def check() -> None:
        if any(text.isspace() for text in texts):
            with pytest.raises(InvalidInput):
                await embedder.embed_queries(texts)
            return
        vectors = await embedder.embed_queries(texts)
        assert np.isfinite(vectors).all()
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-4)
        passages = [PassageInput(text, tuple((at, at + 1) for at in range(len(text)))) for text in texts]
        result = await embedder.embed_passages(passages)
        assert np.abs(result.vectors - vectors).max() < 1e-4
        for text, sentences in zip(texts, result.sentence_vectors, strict=True):
            assert sentences.shape == (len(text), 384)
            assert np.linalg.norm(sentences, axis=1) == pytest.approx(np.ones(len(text)), abs=1e-4)

    asyncio.run(check())
