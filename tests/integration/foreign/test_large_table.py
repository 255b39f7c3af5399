"""A table large enough that the planner takes the index: filters get their full k, also with an older pgvector."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import psycopg
import pytest

from standard.domain.filter import Eq
from standard.domain.passage import Scope
from standard.foreign import catalogue
from standard.foreign.discover import index_is_used
from standard.foreign.mapping import TableMapping, parse_field
from tests.conftest import _database
from tests.integration.foreign.conftest import open_table
from tests.integration.foreign.recorded import vector_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from standard.database.embedded import EmbeddedPostgres

ROWS, WIDTH = 8_000, 16
RARE = 40  # rows of the rare kind: 0.5%
MAPPING = TableMapping(
    "t", table="facts", content="body", title=(parse_field("kind"),), filters={"kind": "kind"}, lexical=False
)


def vectors() -> NDArray[np.float32]:
    rows = np.random.default_rng(7).normal(size=(ROWS, WIDTH)).astype(np.float32)
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


@pytest.fixture(scope="module")
def facts_url(embedded_postgres: EmbeddedPostgres) -> Iterator[str]:
    """8,000 rows under an HNSW and an IVFFlat index, each on its own column; every 200th of a rare kind."""
    with _database(embedded_postgres, "template0") as url, psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create extension vector")
        conn.execute(
            f"create table facts (id int primary key, body text, kind text, embedding vector({WIDTH}),"
            f" listed vector({WIDTH}))".encode()
        )
        with conn.cursor().copy("copy facts from stdin") as copy:
            for number, vector in enumerate(vectors()):
                kind = "rare" if number % (ROWS // RARE) == 0 else "usual"
                text = vector_text(vector.tolist())
                copy.write_row((number, f"Fact {number}", kind, text, text))
        conn.execute("create index facts_hnsw on facts using hnsw (embedding vector_cosine_ops)")
        conn.execute("create index facts_ivf on facts using ivfflat (listed vector_l2_ops) with (lists = 60)")
        conn.execute("analyze facts")
        yield url


def nearest(query: NDArray[np.float32], only: NDArray[np.bool_], k: int) -> set[str]:
    scores = np.where(only, vectors() @ query, -np.inf)
    return {str(number) for number in np.argsort(-scores)[:k]}


@pytest.mark.parametrize("column", ["embedding", "listed"])
@pytest.mark.parametrize("version", ["0.8.6", "0.7.4"])
async def test_a_rare_filter_gets_its_full_k_through_either_index_and_either_pgvector(
    facts_url: str, column: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = tuple(int(part) for part in version.split("."))
    monkeypatch.setattr(catalogue, "parse_version", lambda _text: numbers)
    mapping = replace(MAPPING, embedding=column)
    rare = np.arange(ROWS) % (ROWS // RARE) == 0
    async with open_table(facts_url, mapping, dimensions=WIDTH) as retriever:
        view = await retriever.view()
        assert any("stops an index scan early" in each for each in view.warnings) == (version == "0.7.4")
        assert await index_is_used(retriever._pool, view)
        for query in vectors()[[11, 222, 3333]]:
            scope = Scope(collection="t", filter=Eq("kind", "rare"))
            found = await retriever.search(scope, "x", query, k=30)
            assert len(found.passages) == 30
            assert {item.passage.passage_id for item in found.passages} == nearest(query, rare, 30)
            none = await retriever.search(Scope(collection="t", filter=Eq("kind", "no")), "x", query, k=30)
            assert none.passages == ()


async def test_without_a_filter_the_index_finds_nearly_what_exact_search_finds(facts_url: str) -> None:
    everything = np.ones(ROWS, dtype=bool)
    shares = []
    async with open_table(facts_url, replace(MAPPING, embedding="embedding"), dimensions=WIDTH) as retriever:
        for query in vectors()[:20]:
            found = await retriever.search(Scope(collection="t"), "x", query, k=20)
            ids = {item.passage.passage_id for item in found.passages}
            shares.append(len(ids & nearest(query, everything, 20)) / 20)
    assert float(np.mean(shares)) >= 0.98


async def test_a_partitioned_table_is_searched_through_the_indexes_of_its_partitions(facts_url: str) -> None:
    with psycopg.connect(facts_url, autocommit=True) as conn:
        conn.execute(
            f"create table parted (id int primary key, body text, kind text, embedding vector({WIDTH}))"
            " partition by range (id)".encode()
        )
        conn.execute("create table parted_1 partition of parted for values from (0) to (4000)")
        conn.execute("create table parted_2 partition of parted for values from (4000) to (8000)")
        conn.execute("insert into parted select id, body, kind, embedding from facts")
        conn.execute("create index on parted using hnsw (embedding vector_cosine_ops)")
        conn.execute("analyze parted")
    async with open_table(facts_url, replace(MAPPING, table="parted"), dimensions=WIDTH) as retriever:
        assert await index_is_used(retriever._pool, await retriever.view())
        query = vectors()[5555]
        found = await retriever.search(Scope(collection="t"), "x", query, k=10)
    assert {item.passage.passage_id for item in found.passages} == nearest(query, np.ones(ROWS, dtype=bool), 10)


async def test_a_view_is_searched_exactly(facts_url: str) -> None:
    with psycopg.connect(facts_url, autocommit=True) as conn:
        conn.execute("create view rare_facts as select * from facts where kind = 'rare'")
    mapping = replace(MAPPING, table="rare_facts", id="id", embedding="embedding")
    async with open_table(facts_url, mapping, dimensions=WIDTH) as retriever:
        assert any("search is exact" in each for each in (await retriever.view()).warnings)
        query = vectors()[5555]
        found = await retriever.search(Scope(collection="t"), "x", query, k=10)
    rare = np.arange(ROWS) % (ROWS // RARE) == 0
    assert {item.passage.passage_id for item in found.passages} == nearest(query, rare, 10)


async def test_a_large_table_is_described_by_estimates(facts_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standard.foreign.view.COUNTED_ROWS", 1_000)
    async with open_table(facts_url, replace(MAPPING, embedding="embedding"), dimensions=WIDTH) as retriever:
        assert (await retriever.view()).corpus_size == pytest.approx(ROWS, rel=0.05)
