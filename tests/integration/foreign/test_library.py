"""The tools of the agentic loop over foreign tables: whole where the table holds what they need, plainer where not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from standard.corpus.scan import ScanVerdict
from standard.domain.errors import NotFound
from standard.domain.passage import Scope
from standard.foreign.library import ForeignLibrary
from standard.foreign.mapping import TableMapping
from standard.sandbox.policy import ScanCache
from tests.integration.foreign.conftest import DIMENSIONS, MAPPINGS, embed, open_table
from tests.integration.foreign.recorded import vector_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.domain.passage import RetrievedPassage

SCOPE = Scope(collection="t")


def numbers(found: Sequence[RetrievedPassage]) -> list[int]:
    return [int(item.passage.text.raw[5:].partition(":")[0]) for item in found]


async def test_keywords_are_found_by_the_text_index(layouts_url: str) -> None:
    async with open_table(layouts_url, MAPPINGS["haystack"]) as retriever:
        library = ForeignLibrary(retriever)
        found = await library.keyword_search(SCOPE, '"Unit 42", quay', k=5)
        nothing = await library.keyword_search(SCOPE, " ,, ", k=5)
    assert numbers(found)[0] == 42
    assert found[0].score == 1.0
    assert [item.lexical_rank for item in found] == list(range(5))
    assert list(nothing) == []


@pytest.mark.parametrize("ours", [True, False])
async def test_without_a_text_index_keywords_go_by_their_meaning(layouts_url: str, ours: bool) -> None:
    async with open_table(layouts_url, MAPPINGS["langchain"], ours=ours) as retriever:
        library = ForeignLibrary(retriever)
        found = await library.keyword_search(SCOPE, "lantern tower", k=5)
        assert await library.mentioned(SCOPE, ["Nobody Atall"]) == {"Nobody Atall"}
        assert list(await library.find_linked(SCOPE, [], question="x", vector=await embed("x"), k=3)) == []
    assert len(found) == 5
    assert all("lantern" in item.passage.text.raw for item in found)


async def test_meaning_alone_ranks_by_the_passages_own_vectors(layouts_url: str) -> None:
    async with open_table(layouts_url, MAPPINGS["haystack"]) as retriever:
        library = ForeignLibrary(retriever)
        found = await library.semantic_search(SCOPE, "winch quay greased", await embed("winch quay greased"), k=7)
    similarities = [item.dense_score or 0.0 for item in found]
    assert len(found) == 7
    assert similarities == sorted(similarities, reverse=True)
    assert all(item.lexical_score is None for item in found)


async def test_names_count_as_mentioned_where_a_passage_holds_all_their_words(layouts_url: str) -> None:
    async with open_table(layouts_url, MAPPINGS["llamaindex"]) as retriever:
        known = await ForeignLibrary(retriever).mentioned(SCOPE, ["Unit 42", "Unit 9999", "the lantern", "of the"])
    assert known == {"Unit 42", "the lantern", "of the"}


async def test_a_passage_is_read_with_its_neighbours_where_positions_are_mapped(layouts_url: str) -> None:
    async with open_table(layouts_url, MAPPINGS["django"]) as retriever:
        library = ForeignLibrary(retriever)
        found = await retriever.search(SCOPE, "Unit 43", await embed("Unit 43"), k=100)
        passage = next(item.passage for item in found.passages if item.passage.text.raw.startswith("Unit 43:"))
        section = await library.read_section(SCOPE, passage, neighbours=False)
    assert [line[:8] for line in section.text.raw.split("\n\n")] == ["Unit 42:", "Unit 43:", "Unit 44:"]


async def test_a_passage_without_a_position_is_read_alone_and_one_that_went_is_told_of(own_url: str) -> None:
    vector = vector_text((await embed("A pump.")).tolist())
    with psycopg.connect(own_url, autocommit=True) as conn:
        conn.execute(f"create table notes (id int primary key, body text, embedding vector({DIMENSIONS}))".encode())
        conn.execute("insert into notes values (1, 'A pump.', %s), (2, 'A valve.', %s)", [vector, vector])
        async with open_table(own_url, TableMapping("t", table="notes", content="body")) as retriever:
            library = ForeignLibrary(retriever)
            found = await retriever.search(SCOPE, "A pump.", await embed("A pump."), k=2)
            passage = next(item.passage for item in found.passages if item.passage.text.raw == "A pump.")
            assert (await library.read_section(SCOPE, passage, neighbours=True)).text.raw == "A pump."
            conn.execute("delete from notes where id = 1")
            with pytest.raises(NotFound):
                await library.read_section(SCOPE, passage, neighbours=True)


async def test_linked_passages_are_of_other_documents_and_share_names(layouts_url: str) -> None:
    async with open_table(layouts_url, MAPPINGS["haystack"]) as retriever:
        first = await retriever.search(SCOPE, "Unit 42", await embed("Unit 42"), k=1)
        sources = [item.passage for item in first.passages]
        found = await ForeignLibrary(retriever).find_linked(
            SCOPE, sources, question="Which crew?", vector=await embed("Which crew?"), k=5
        )
    assert found
    assert all(item.via == "link" for item in found)
    assert not {source.document_id for source in sources} & {item.passage.document_id for item in found}


async def test_each_text_is_scanned_once_and_what_is_quarantined_is_withheld_everywhere(layouts_url: str) -> None:
    scanned: list[str] = []

    def scan(_title: str, text: str) -> ScanVerdict:
        scanned.append(text)
        return ScanVerdict("quarantine", ("test",)) if "lantern" in text else ScanVerdict()

    async with open_table(layouts_url, MAPPINGS["haystack"]) as retriever:
        retriever._scan = ScanCache(scan, "1")
        library = ForeignLibrary(retriever)
        vector = await embed("lantern tower")
        found = await retriever.search(SCOPE, "lantern tower", vector, k=5)
        seen = len(scanned)
        again = await retriever.search(SCOPE, "lantern tower", vector, k=5)
        words = await library.keyword_search(SCOPE, "lantern tower", k=20)
        meant = await library.semantic_search(SCOPE, "lantern tower", vector, k=20)
    assert found.withheld
    assert len(found.passages) == 5
    for result in (found.passages, again.passages, words, meant):
        assert not [item for item in result if "lantern" in item.passage.text.raw]
    assert len(scanned) == len(set(scanned))
    assert seen > 0
