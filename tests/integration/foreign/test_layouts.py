"""Every layout is read as it is, and finds what direct SQL finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pytest

from standard.domain.filter import And, Eq, In, Range
from standard.domain.passage import Scope
from tests.integration.foreign.conftest import MAPPINGS, OPERATORS, embed, open_table
from tests.integration.foreign.recorded import vector_text

if TYPE_CHECKING:
    from standard.foreign.retriever import ForeignRetriever

SCOPE = Scope(collection="t")
QUESTIONS = [
    "Which crew greases the winch on the quay?",
    "How often is the boiler in the cellar inspected?",
    "lantern tower painted",
    "Unit 42",
    "anchor compass rudder",
]


def direct(
    url: str, layout: str, vector: np.ndarray[Any, Any], k: int, where: str = "true"
) -> tuple[set[str], set[str]]:
    """Texts that must be among the k nearest, and that may be: rows as near as the k-th; by SQL without an index."""
    table, text, only = {
        "langchain": ("langchain_pg_embedding", "document", "id like 'handbook-%'"),
        "langchain-community": ("older.langchain_pg_embedding", "document", "true"),
        "langchain-pgvectorstore": ("handbook_store", "content", "true"),
        "llamaindex": ("data_handbook", "text", "true"),
        "llamaindex-halfvec": ("data_handbook_half", "text", "true"),
        "haystack": ("haystack_documents", "content", "true"),
        "django": ("library_page", "body", "true"),
    }[layout]
    kind = "halfvec" if layout.endswith("halfvec") else "vector"
    distance = f"(embedding {OPERATORS[layout]} '{vector_text(vector.tolist())}'::{kind}) + 0"
    statement = f"select {text}, {distance} from {table} where {only} and {where} order by 2"
    with psycopg.connect(url) as conn:
        rows = conn.execute(statement.encode()).fetchall()
    last = rows[k - 1][1]
    return {row[0] for row in rows if row[1] < last - 1e-6}, {row[0] for row in rows if row[1] <= last + 1e-6}


async def nearest(retriever: ForeignRetriever, question: str, k: int, scope: Scope = SCOPE) -> list[str]:
    """Texts of the dense leg, in its order."""
    view = await retriever.view()
    condition = retriever.condition(view, scope)
    found = await retriever.dense(view, condition, question, await embed(question), depth=k, wanted=k)
    rows, _ = await retriever.read(view, condition, list(found.leg.keys))
    return [rows[key].text.raw for key in found.leg.keys]


@pytest.mark.parametrize("layout", MAPPINGS)
async def test_the_nearest_rows_are_those_of_direct_sql(layouts_url: str, layout: str) -> None:
    async with open_table(layouts_url, MAPPINGS[layout]) as retriever:
        for question in QUESTIONS:
            must, may = direct(layouts_url, layout, await embed(question), 20)
            found = await nearest(retriever, question, 20)
            assert len(set(found)) == 20
            assert must <= set(found) <= may


@pytest.mark.parametrize("layout", MAPPINGS)
async def test_a_filter_gets_its_full_k_and_the_same_rows_as_direct_sql(layouts_url: str, layout: str) -> None:
    only = {
        "langchain": "cmetadata ->> 'year' = '2023'",
        "langchain-community": "cmetadata ->> 'year' = '2023'",
        "langchain-pgvectorstore": "year = 2023",
        "llamaindex": "metadata_ ->> 'year' = '2023'",
        "llamaindex-halfvec": "metadata_ ->> 'year' = '2023'",
        "haystack": "meta ->> 'year' = '2023'",
        "django": "year = 2023",
    }[layout]
    scope = Scope(collection="t", filter=Eq("year", 2023.0))
    async with open_table(layouts_url, MAPPINGS[layout]) as retriever:
        for question in QUESTIONS:
            must, may = direct(layouts_url, layout, await embed(question), 20, only)
            found = await nearest(retriever, question, 20, scope)
            assert len(set(found)) == 20
            assert must <= set(found) <= may


@pytest.mark.parametrize("layout", MAPPINGS)
async def test_a_passage_has_its_document_title_address_and_metadata(layouts_url: str, layout: str) -> None:
    async with open_table(layouts_url, MAPPINGS[layout]) as retriever:
        found = await retriever.search(SCOPE, QUESTIONS[0], await embed(QUESTIONS[0]), k=5)
    assert len(found.passages) == 5
    passage = found.passages[0].passage
    number = int(passage.text.raw.removeprefix("Unit ").partition(":")[0])
    assert passage.document_id == f"doc-{number // 3}"
    assert passage.title.raw == f"Manual {number // 3}"
    assert passage.metadata["year"] == 2020 + number % 5
    assert not [key for key in passage.metadata if key.startswith("_node")]
    if layout != "django":
        assert passage.uri == f"https://example.org/manual/{number // 3}"
    assert len({item.passage.passage_id for item in found.candidates}) == 20


@pytest.mark.parametrize("layout", MAPPINGS)
async def test_the_evidence_is_whole_where_the_embedder_is_the_gateways(layouts_url: str, layout: str) -> None:
    vector = await embed(QUESTIONS[1])
    async with open_table(layouts_url, MAPPINGS[layout]) as retriever:
        found = await retriever.search(SCOPE, QUESTIONS[1], vector, k=5)
    assert found.vectors is not None
    assert found.vectors.shape == (20, 64)
    assert found.corpus_size == 300
    for item, row in zip(found.candidates, found.vectors, strict=True):
        if item.dense_score is not None:
            assert float(row @ vector) == pytest.approx(item.dense_score, abs=2e-3)


@pytest.mark.parametrize("layout", ["llamaindex", "llamaindex-halfvec", "haystack"])
async def test_words_are_looked_up_where_there_is_a_text_index(layouts_url: str, layout: str) -> None:
    async with open_table(layouts_url, MAPPINGS[layout]) as retriever:
        found = await retriever.search(SCOPE, "Unit 42?", await embed("Unit 42?"), k=3)
    assert found.passages[0].passage.text.raw.startswith("Unit 42:")
    assert found.passages[0].lexical_rank == 0
    assert found.term_idf["42"] > found.term_idf["unit"] > 0.0
    assert found.term_idf["42"] == pytest.approx(np.log(1 + (300 - 1 + 0.5) / 1.5))


@pytest.mark.parametrize("layout", ["langchain", "django"])
async def test_without_a_text_index_meaning_alone_finds_and_this_is_said(layouts_url: str, layout: str) -> None:
    async with open_table(layouts_url, MAPPINGS[layout]) as retriever:
        found = await retriever.search(SCOPE, QUESTIONS[0], await embed(QUESTIONS[0]), k=3)
        assert any("no text index" in warning for warning in (await retriever.view()).warnings)
    assert all(item.lexical_score is None for item in found.passages)
    assert found.term_idf == {}


async def test_another_collection_of_the_same_table_stays_apart(layouts_url: str) -> None:
    async with open_table(layouts_url, MAPPINGS["langchain"]) as retriever:
        found = await retriever.search(SCOPE, QUESTIONS[0], await embed(QUESTIONS[0]), k=100)
    assert len(found.passages) == 100
    assert all(item.passage.passage_id.startswith("handbook-") for item in found.passages)


async def test_filters_of_every_kind_hold_over_columns_and_over_metadata(layouts_url: str) -> None:
    vector = await embed("winch")
    for layout in ("haystack", "langchain-community", "django", "langchain-pgvectorstore"):
        async with open_table(layouts_url, MAPPINGS[layout]) as retriever:
            for condition in (
                In("year", (2021.0, 2024.0)),
                Range("year", at_least=2021.0, at_most=2022.0),
                And((Range("year", at_least=2022.0), Eq("document_id", "doc-11"))),
                Range("document_id", at_least="doc-1", at_most="doc-2"),
                Eq("year", "2021"),
                Eq("year", True),
            ):
                scope = Scope(collection="t", filter=condition)
                found = await retriever.search(scope, "winch", vector, k=100)
                numbers = {int(item.passage.text.raw[5:].partition(":")[0]) for item in found.passages}
                expected = {number for number in range(300) if _holds(condition, number)}
                assert numbers <= expected, (layout, condition)
                assert len(numbers) == min(100, len(expected)), (layout, condition)


def _holds(condition: object, number: int) -> bool:
    row: dict[str, Any] = {"year": 2020 + number % 5, "document_id": f"doc-{number // 3}"}
    match condition:
        case Eq(key, value):
            return type(value) is not bool and not (isinstance(value, str) and key == "year") and row[key] == value
        case In(key, values):
            return row[key] in values
        case Range(key, at_least, at_most):
            low = at_least is None or row[key] >= at_least
            return bool(low and (at_most is None or row[key] <= at_most))
        case And(parts):
            return all(_holds(part, number) for part in parts)
    raise AssertionError


async def test_excluded_passages_do_not_count(layouts_url: str) -> None:
    vector = await embed(QUESTIONS[0])
    async with open_table(layouts_url, MAPPINGS["haystack"]) as retriever:
        first = await retriever.search(SCOPE, QUESTIONS[0], vector, k=5)
        known = frozenset(item.passage.passage_id for item in first.passages)
        second = await retriever.search(SCOPE, QUESTIONS[0], vector, k=5, exclude=known)
        many = await retriever.search_many(SCOPE, QUESTIONS, np.stack([await embed(text) for text in QUESTIONS]), k=4)
    assert len(second.passages) == 5
    assert not known & {item.passage.passage_id for item in second.passages}
    assert [len(found.passages) for found in many] == [4] * 5
