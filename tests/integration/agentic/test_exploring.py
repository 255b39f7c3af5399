"""The step onward over the real database and embedder: a bridge that a source names, among that source's siblings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from agentic import exploring
from agentic.embedding import as_bytes
from agentic.exploring import FURTHER, LINKED, SECOND_LOOK, SMALL_COLLECTION, explore, fuse, second_look
from agentic.next_hop.scoring import Looks
from agentic.run import begin
from agentic.settings import AgenticSettings
from standard.corpus.document import SourceDocument
from standard.database.pool import DatabaseConfig, open_pool
from standard.domain.passage import RetrievedPassage, Scope
from standard.domain.question import Question
from standard.domain.text import UntrustedText
from standard.embedding.factory import open_embedder
from standard.embedding.protocol import Embedder
from standard.retrieval.reader import CorpusReader
from standard.retrieval.retriever import CorpusRetriever
from tests.support.corpora import fill

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = (
    "When was the lighthouse keeper's daughter born who is on the cover of the sailing game Northern Regatta 2016?"
)
EDITIONS = {
    f"Northern Regatta {year}": f"Northern Regatta {year} is a sailing game of the Northern Regatta series, with the "
    f"lighthouse keeper's daughter {who} on its cover. It was published in the autumn of {year - 1}."
    for year, who in (
        (2012, "of the series"),
        (2013, "again"),
        (2014, "once more"),
        (2015, "again"),
        (2016, "Idunn Vik"),
    )
}
AROUND = {
    "Northern Regatta (series)": "Northern Regatta is a series of sailing games. A lighthouse is on every cover.",
    "Southern Regatta 2016": "Southern Regatta 2016 is a sailing game with a lighthouse keeper on the cover.",
    "Covers of sailing games": "The cover of a sailing game shows a sailor, a lighthouse or a keeper's boat.",
    "Keeper's daughter (song)": "The lighthouse keeper's daughter is a song about a girl on a sailing boat.",
}
BRIDGE = {"Idunn Vik": "Idunn Vik (born 3 May 1988) has rowed for her club since she was nine."}
ELSEWHERE = {
    "Refunds": "A ticket is refunded in full when a sailing is cancelled because of the weather.",
    "Harbour office": "The harbour office opens at seven and closes at noon on Fridays.",
}


@dataclass
class World:
    embedder: Embedder
    retriever: CorpusRetriever
    library: CorpusReader

    async def titles_onward(self, *, corpus_size: int) -> list[str]:
        """Titles that a step onward finds, best first, as if the collection had so many passages."""
        question = Question(UntrustedText(QUESTION), Scope(), top_k=2)
        vector = (await self.embedder.embed_queries([QUESTION]))[0]
        first = await self.retriever.search(question.scope, QUESTION, vector, k=2)
        state, _ = begin(question, first, vector, AgenticSettings())
        state = replace(state, corpus_size=corpus_size)
        refs = tuple(held.ref for held in state.evidence.held)
        look = await self.embedder.embed_queries([second_look(state, refs)])
        assert "Northern Regatta 2016" in {held.passage.title.raw for held in state.evidence.held}
        assert "Idunn Vik" not in {held.passage.title.raw for held in state.evidence.held}
        found = await explore(state, refs, as_bytes(look)[0], self.library, question.scope)
        assert {item.via for item in found} == {"link"}
        return [item.passage.title.raw for item in found]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(module_database_url: str) -> AsyncIterator[World]:
    async with open_pool(DatabaseConfig(url=module_database_url)) as pool, open_embedder() as embedder:
        documents = [
            SourceDocument(document_id=f"d{at}", title=title, text=text)
            for at, (title, text) in enumerate((EDITIONS | AROUND | BRIDGE | ELSEWHERE).items())
        ]
        await fill(pool, embedder, documents)
        retriever = CorpusRetriever(pool, embedder_id=embedder.id, embedder_checksum=embedder.checksum)
        yield World(embedder, retriever, CorpusReader(pool, retriever))


async def test_a_bridge_that_a_source_names_is_won_against_the_sources_siblings(world: World) -> None:
    assert (await world.titles_onward(corpus_size=SMALL_COLLECTION + 1))[0] == "Idunn Vik"


async def test_ranks_alone_would_have_let_a_sibling_win(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_ranks(
        _terms: object, _sources: object, looks: Looks, held: set[str], _weights: object
    ) -> list[RetrievedPassage]:
        fused = fuse([looks.further, looks.linked, looks.near], [FURTHER, LINKED, SECOND_LOOK])
        return [item for item in fused if item.passage.document_id not in held]

    monkeypatch.setattr(exploring, "next_hops", by_ranks)
    first = (await world.titles_onward(corpus_size=SMALL_COLLECTION + 1))[0]
    assert first in EDITIONS | AROUND


async def test_in_a_small_collection_links_are_left_out(world: World) -> None:
    titles = await world.titles_onward(corpus_size=SMALL_COLLECTION)
    assert titles.index("Idunn Vik") > 2
