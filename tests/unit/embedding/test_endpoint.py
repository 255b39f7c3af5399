"""An OpenAI-compatible endpoint over real HTTP: what it gives is checked, what it fails with is typed and bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest
import pytest_asyncio

from standard.domain.errors import EmbedderUnavailable, FailedPrecondition, InvalidInput
from standard.embedding.config import EmbeddingConfig
from standard.embedding.endpoint import EndpointEmbedder
from standard.embedding.factory import open_embedder
from standard.embedding.protocol import PassageInput, TextTooLong
from tests.support.model_server.behaviour import Failure, Hang, Raw
from tests.support.model_server.embedding import embed
from tests.support.model_server.server import ModelServer

D = 32


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(dimensions=D) as started:
        yield started


@pytest_asyncio.fixture
async def embedder(server: ModelServer) -> AsyncIterator[EndpointEmbedder]:
    opened = EndpointEmbedder(base_url=server.base_url, model="some-model", timeout_seconds=5, dimensions=D)
    yield opened
    await opened.close()


def inputs(server: ModelServer) -> list[list[str]]:
    return [request.body["input"] for request in server.others]


def body(vectors: Sequence[Sequence[float | None]], indexes: list[int] | None = None) -> Raw:
    items = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in zip(indexes or range(len(vectors)), vectors, strict=True)
    ]
    data = {"object": "list", "model": "m", "data": items, "usage": {"prompt_tokens": 1, "total_tokens": 1}}
    return Raw(json.dumps(data).encode(), "application/json")


async def test_questions_get_the_vectors_of_the_endpoint(server: ModelServer, embedder: EndpointEmbedder) -> None:
    vectors = await embedder.embed_queries(["who holds the keys", "which hall"])
    assert vectors == pytest.approx(np.stack([embed("who holds the keys", D), embed("which hall", D)]), abs=1e-5)
    request = server.others[0]
    assert (request.path, request.body["model"]) == ("/v1/embeddings", "some-model")


async def test_the_key_is_sent_where_there_is_one_and_nothing_from_the_environment(
    server: ModelServer, embedder: EndpointEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-environment")
    await embedder.embed_queries(["one"])
    assert "authorization" not in server.others[0].headers
    keyed = EndpointEmbedder(base_url=server.base_url, model="m", api_key="sk-mine", dimensions=D)
    await keyed.embed_queries(["two"])
    await keyed.close()
    assert server.others[1].headers["authorization"] == "Bearer sk-mine"


async def test_opening_learns_the_dimensions_and_batches_questions(server: ModelServer) -> None:
    config = EmbeddingConfig(model="openai:some-model", base_url=server.base_url)
    async with open_embedder(config) as opened:
        assert (opened.id, opened.dimensions, opened.max_tokens) == ("openai:some-model", D, 512)
        await asyncio.gather(*(opened.embed_queries([f"question {number}"]) for number in range(100)))
    assert len(server.others) < 60


async def test_opening_with_dimensions_needs_no_endpoint() -> None:
    config = EmbeddingConfig(model="openai:text-embedding-3-small", base_url="http://127.0.0.1:9/v1", dimensions=1536)
    async with open_embedder(config) as opened:
        assert (opened.dimensions, opened.max_tokens) == (1536, 8191)


async def test_passages_and_sentences_are_embedded_each_text_once(
    server: ModelServer, embedder: EndpointEmbedder
) -> None:
    passages = [
        PassageInput("Bees fly. Bees sting.", ((0, 9), (10, 21))),
        PassageInput("Bees fly.", ((0, 9),)),
        PassageInput("Wasps too.   ", ((0, 10), (10, 13))),
    ]
    result = await embedder.embed_passages(passages)
    assert sorted(text for call in inputs(server) for text in call) == [
        "Bees fly.", "Bees fly. Bees sting.", "Bees sting.", "Wasps too.", "Wasps too.   ",
    ]  # fmt: skip
    assert result.vectors[0] == pytest.approx(embed("Bees fly. Bees sting.", D), abs=1e-5)
    assert result.sentence_vectors[0][1] == pytest.approx(embed("Bees sting.", D), abs=1e-5)
    assert result.sentence_vectors[1][0] == pytest.approx(result.vectors[1])
    assert result.sentence_vectors[2][1] == pytest.approx(result.vectors[2])


async def test_many_passages_go_in_several_calls_and_come_back_in_order(
    server: ModelServer, embedder: EndpointEmbedder
) -> None:
    passages = [PassageInput(f"passage {number} of many") for number in range(300)]
    result = await embedder.embed_passages(passages)
    assert max(map(len, inputs(server))) <= 64
    assert len(inputs(server)) == 5
    for number in (0, 63, 64, 299):
        assert result.vectors[number] == pytest.approx(embed(passages[number].text, D), abs=1e-5)


async def test_a_passage_that_may_not_fit_is_refused_before_anything_is_sent(
    server: ModelServer, embedder: EndpointEmbedder
) -> None:
    with pytest.raises(TextTooLong) as caught:
        await embedder.embed_passages([PassageInput("fits"), PassageInput("storage " * 400)])
    assert caught.value.index == 1
    assert not server.others


async def test_a_long_question_is_sent_in_pieces_that_fit(server: ModelServer, embedder: EndpointEmbedder) -> None:
    vectors = await embedder.embed_queries(["storage hall " * 400, "keys"])
    sent = [text for call in inputs(server) for text in call]
    assert max(embedder.count_tokens(sent)) <= 512
    assert sum(text.count("hall") for text in sent) == 400
    assert vectors[0] == pytest.approx(embed("storage hall " * 400, D), abs=1e-3)
    assert vectors[1] == pytest.approx(embed("keys", D), abs=1e-5)


async def test_blank_text_is_refused_and_odd_characters_are_sent_as_replacements(
    server: ModelServer, embedder: EndpointEmbedder
) -> None:
    with pytest.raises(InvalidInput, match="blank"):
        await embedder.embed_queries(["  "])
    await embedder.embed_queries(["a\x00b\ud800"])
    assert inputs(server) == [["a\ufffdb\ufffd"]]


async def test_vectors_out_of_order_are_put_in_order(server: ModelServer, embedder: EndpointEmbedder) -> None:
    first, second = [1.0] + [0.0] * (D - 1), [0.0] * (D - 1) + [2.0]
    server.embedding_failure = body([second, first], [1, 0])
    vectors = await embedder.embed_queries(["one", "two"])
    assert vectors.argmax(axis=1).tolist() == [0, D - 1]
    assert np.linalg.norm(vectors, axis=1).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (body([[1.0] * D]), "1 vectors for 2 texts"),
        (body([[1.0] * D] * 3), "3 vectors for 2 texts"),
        (body([[1.0] * D] * 2, [0, 0]), "2 vectors for 2 texts"),
        (body([[1.0] * 8] * 2), "8 dimensions, not 32"),
        (body([[1.0] * D, [1.0] * 8]), "no embeddings"),
        (body([[1.0] * D, [0.0] * D]), "zero or not finite"),
        (body([[1.0] * D, [float("nan")] * D]), "zero or not finite"),
        (body([[1.0] * D, [None] * D]), "zero or not finite|no embeddings"),
        (body([]), "no embeddings|0 vectors"),
        (Raw(), "no embeddings"),
        (Raw(b'{"data": null}', "application/json"), "no embeddings"),
        (Raw(b'{"data": [', "application/json"), "no embeddings"),
        (Raw(b'"x"', "application/json"), "no embeddings"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_that_says_why(
    server: ModelServer, embedder: EndpointEmbedder, answer: Raw, words: str
) -> None:
    server.embedding_failure = answer
    with pytest.raises(EmbedderUnavailable, match=words):
        await embedder.embed_queries(["one", "two"])


@pytest.mark.parametrize(
    ("status", "words"),
    [(400, "max_tokens"), (401, "api_key"), (404, "base_url"), (413, "max_tokens"), (422, "max_tokens")],
)
async def test_a_refusal_names_the_setting_and_neither_key_nor_text(
    server: ModelServer, status: int, words: str
) -> None:
    server.embedding_failure = Failure(status, "the text 'secret question' with key sk-secret is wrong")
    opened = EndpointEmbedder(
        base_url=server.base_url.replace("http://", "http://user:sk-secret@"), model="m", api_key="sk-secret"
    )
    with pytest.raises(EmbedderUnavailable, match=words) as caught:
        await opened.embed_queries(["secret question"])
    await opened.close()
    assert "secret" not in str(caught.value)
    assert len(server.others) == 1


async def test_a_server_that_recovers_is_asked_again(server: ModelServer, embedder: EndpointEmbedder) -> None:
    server.embedding_failure = Failure(503)
    asking = asyncio.create_task(embedder.embed_queries(["one"]))
    async with asyncio.timeout(4):
        while not server.others or not server.others[0].finished:  # noqa: ASYNC110 - it tells of chat requests only
            await asyncio.sleep(0.005)
    server.embedding_failure = None
    assert (await asking).shape == (1, D)
    assert len(server.others) == 2


async def test_a_rate_limit_that_stays_is_an_error_with_the_servers_advice(
    server: ModelServer, embedder: EndpointEmbedder
) -> None:
    server.embedding_failure = Failure(429, retry_after=0.01)
    with pytest.raises(EmbedderUnavailable, match="429") as caught:
        await embedder.embed_queries(["one"])
    assert caught.value.retry_after_seconds == pytest.approx(0.01)
    assert len(server.others) == 3


async def test_a_server_that_hangs_is_left_when_the_time_is_up(server: ModelServer) -> None:
    server.embedding_failure = Hang()
    opened = EndpointEmbedder(base_url=server.base_url, model="m", timeout_seconds=0.3, dimensions=D)
    began = asyncio.get_running_loop().time()
    with pytest.raises(EmbedderUnavailable, match=r"within 0\.3 s"):
        await opened.embed_queries(["one"])
    assert asyncio.get_running_loop().time() - began < 2
    await opened.close()


async def test_a_server_that_is_not_there_is_an_error_at_the_start() -> None:
    config = EmbeddingConfig(model="openai:m", base_url="http://127.0.0.1:9/v1", timeout_seconds=1)
    with pytest.raises(EmbedderUnavailable, match=r"check embedding\.base_url|within 1 s"):
        async with open_embedder(config):
            pass


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host/v1"])
async def test_a_base_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(FailedPrecondition, match=r"embedding\.base_url"):
        async with open_embedder(EmbeddingConfig(model="openai:m", base_url=url)):
            pass


async def test_a_failing_ingest_is_one_plain_error(server: ModelServer, embedder: EndpointEmbedder) -> None:
    server.embedding_failure = Failure(400)
    with pytest.raises(EmbedderUnavailable, match="400"):
        await embedder.embed_passages([PassageInput(f"passage {number}") for number in range(200)])


async def test_cancelling_closes_the_connection(server: ModelServer, embedder: EndpointEmbedder) -> None:
    server.embedding_failure = Hang()
    asking = asyncio.create_task(embedder.embed_queries(["one"]))
    async with asyncio.timeout(4):
        while not server.others:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while server.others[0].client_gone is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_another_model_or_length_has_another_checksum() -> None:
    def checksum(model: str, dimensions: int) -> str:
        return EndpointEmbedder(base_url="http://h/v1", model=model, dimensions=dimensions).checksum

    assert len({checksum("a", 8), checksum("b", 8), checksum("a", 16)}) == 3
    assert checksum("a", 8) == checksum("a", 8)


def test_the_key_is_not_shown_with_the_configuration() -> None:
    assert "sk-secret" not in repr(EmbeddingConfig(api_key="sk-secret"))
