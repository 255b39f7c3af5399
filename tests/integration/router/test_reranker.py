"""A cross-encoder of the settings orders what a gateway finds first; without its extra the start says so."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

import pytest
from pointsman.client import question
from pointsman.v1 import corpus_pb2

from router.application import open_application
from standard.domain.errors import EmbedderUnavailable, FailedPrecondition
from standard.retrieval.retriever import CorpusRetriever
from tests.integration.router.conftest import fill, running, settings_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ASKED = "How long is lost property kept?"


class ShortestFirst:
    """In the place of a cross-encoder: the shorter a text, the better."""

    loaded: ClassVar[list[str]] = []
    read: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, model: str, *, device: str) -> None:
        assert device == "cpu"
        if model == "nobody/nothing":
            raise OSError(model)
        self.loaded.append(model)

    def predict(self, pairs: Sequence[tuple[str, str]], **more: object) -> list[float]:
        del more
        self.read.extend(pairs)
        return [-float(len(text.partition("\n")[2])) for _, text in pairs]  # a title stands before it


@pytest.fixture
def scorer(monkeypatch: pytest.MonkeyPatch) -> type[ShortestFirst]:
    """The library of cross-encoders, with that one in it."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=lambda _: None))
    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(CrossEncoder=ShortestFirst))
    ShortestFirst.loaded.clear()
    ShortestFirst.read.clear()
    return ShortestFirst


async def test_the_first_search_is_ordered_by_it_and_its_time_is_counted(
    database_url: str, tmp_path: Path, scorer: type[ShortestFirst]
) -> None:
    searching = corpus_pb2.SearchPassagesRequest(query=ASKED, top_k=3)
    async with running(settings_for(database_url, tmp_path)) as plain:
        await fill(plain.client)
        before = [hit.text for hit in (await plain.client.corpus.SearchPassages(searching)).passages]
        await plain.client.answer(question(ASKED))
        assert plain.metric("pointsman_retrieval_seconds_count", stage="rerank") == 0
    assert not scorer.loaded
    settings = settings_for(database_url, tmp_path, retrieval={"reranker": "some/cross-encoder"})
    async with running(settings) as reranked:
        after = [hit.text for hit in (await reranked.client.corpus.SearchPassages(searching)).passages]
        assert after == sorted(after, key=len), "as the scorer has it"
        assert before != after
        answer = await reranked.client.answer(question(ASKED))
        assert answer.answer
        assert reranked.metric("pointsman_retrieval_seconds_count", stage="rerank") == 1
        assert reranked.metric("pointsman_retrieval_seconds_count", stage="fuse") == 1
    assert scorer.loaded == ["some/cross-encoder"]
    assert {asked for asked, _ in scorer.read} == {ASKED}


async def test_without_one_the_retriever_stands_alone(database_url: str, tmp_path: Path) -> None:
    async with open_application(settings_for(database_url, tmp_path)) as application:
        assert isinstance(application.passages, CorpusRetriever)


async def test_a_missing_extra_stops_the_start_with_the_way_out(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    settings = settings_for(database_url, tmp_path, retrieval={"reranker": "some/cross-encoder"})
    with pytest.raises(FailedPrecondition, match=r"pointsman\[models\].*POINTSMAN_RETRIEVAL__RERANKER"):
        async with open_application(settings):
            pass


async def test_a_model_that_is_not_there_stops_the_start(
    database_url: str, tmp_path: Path, scorer: type[ShortestFirst]
) -> None:
    del scorer
    settings = settings_for(database_url, tmp_path, retrieval={"reranker": "nobody/nothing"})
    with pytest.raises(EmbedderUnavailable, match="nobody/nothing"):
        async with open_application(settings):
            pass
