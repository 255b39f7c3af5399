"""The corpus retriever over a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from standard.database.pool import DatabaseConfig, Pool, open_pool
from standard.domain.errors import DatabaseUnavailable, FailedPrecondition, InvalidInput, NotFound
from standard.domain.filter import And, Eq, Filter, In, Range
from standard.domain.passage import Retriever, Scope, SearchResult
from standard.retrieval.retriever import CorpusRetriever, RetrievalSettings
from tests.integration.retrieval.rows import CHECKSUM, EMBEDDER, Row, add_collection, unit

DIMENSIONS = 16
COLOURS = ("red", "green", "blue", "amber")


def retriever(pool: Pool, **settings: object) -> CorpusRetriever:
    return CorpusRetriever(
        pool,
        embedder_id=EMBEDDER,
        embedder_checksum=CHECKSUM,
        settings=RetrievalSettings(**settings),  # type: ignore[arg-type]
    )


def ids(result: SearchResult) -> list[str]:
    return [found.passage.passage_id for found in result.passages]


def axis(number: int) -> NDArray[np.float32]:
    return unit(np.eye(DIMENSIONS)[number])


def row(document_id: str, text: str, vector: NDArray[np.float32], **more: object) -> Row:
    return Row(document_id, (text,), vector[None, :], **more)  # type: ignore[arg-type]


async def test_both_legs_contribute_and_say_what_they_found(pool: Pool) -> None:
    rows = [
        row("near", "nothing in common", axis(0)),
        row("word", "the zanzibar ledger", axis(1)),
        row("both", "the zanzibar account", unit(axis(0) + axis(1))),
        row("neither", "something else", axis(2)),
    ]
    await add_collection(pool, rows)
    result = await retriever(pool).search(Scope(), "zanzibar", axis(0), k=3)
    assert ids(result)[0] == "both#0"
    by_id = {found.passage.document_id: found for found in result.candidates}
    assert by_id["near"].dense_score == pytest.approx(1.0, abs=1e-3)
    assert (by_id["near"].dense_rank, by_id["near"].lexical_rank, by_id["near"].lexical_score) == (0, None, None)
    assert by_id["word"].lexical_rank in {0, 1}
    assert by_id["both"].dense_score == pytest.approx(2**-0.5, abs=1e-3)
    assert all(0.0 <= found.score <= 1.0 for found in result.candidates)
    assert result.corpus_size == 4
    assert result.term_idf == pytest.approx({"zanzibar": np.log(1 + 2.5 / 2.5)})
    assert result.vectors is not None
    assert result.vectors.shape == (4, DIMENSIONS)
    order = [found.passage.document_id for found in result.candidates]
    assert result.vectors[order.index("word")] == pytest.approx(axis(1), abs=1e-3)
    assert result.seconds.dense > 0.0
    assert result.seconds.lexical > 0.0


def test_it_is_a_retriever(pool: Pool) -> None:
    _: Retriever = retriever(pool)


@pytest.fixture(scope="module")
def grid() -> tuple[list[Row], NDArray[np.float32], NDArray[np.float32]]:
    """20,000 documents at random, every 200th rare (0.5%), and some questions."""
    random = np.random.default_rng(7)
    vectors = unit(random.normal(size=(20_000, DIMENSIONS)))
    rows = [
        row(
            f"d{number}",
            f"{COLOURS[number % 4]} item number{number % 977} of shelf{number % 13}",
            vectors[number],
            title=f"Item {number}",
            metadata={
                "rare": number % 200 == 0,
                "colour": COLOURS[number % 4],
                "price": number / 10,
                "code": str(number),
            },
        )
        for number in range(len(vectors))
    ]
    return rows, vectors, unit(random.normal(size=(20, DIMENSIONS)))


@pytest.fixture(scope="module")
def grid_url(module_database_url: str, grid: tuple[list[Row], NDArray[np.float32], NDArray[np.float32]]) -> str:
    async def load() -> None:
        async with open_pool(DatabaseConfig(url=module_database_url)) as pool:
            await add_collection(pool, grid[0], index="halfvec_ip_ops")

    asyncio.run(load())
    return module_database_url


@pytest_asyncio.fixture
async def grid_pool(grid_url: str) -> AsyncIterator[Pool]:
    async with open_pool(DatabaseConfig(url=grid_url)) as pool:
        yield pool


async def test_the_index_finds_what_an_exact_search_finds(
    grid_pool: Pool, grid: tuple[list[Row], NDArray[np.float32], NDArray[np.float32]]
) -> None:
    _, vectors, questions = grid
    recall = []
    for question in questions:
        legs = await retriever(grid_pool).legs(Scope(), "", question)
        truth = set(np.argsort(-(vectors @ question))[:100] + 1_000_000)
        assert len(legs.dense.keys) == 100
        recall.append(len(truth & set(legs.dense.keys)) / 100)
        assert list(legs.dense.scores) == sorted(legs.dense.scores, reverse=True)
    assert legs.view.indexed
    assert np.mean(recall) >= 0.95


async def test_the_dense_leg_goes_through_the_index_and_reads_one_partition(grid_pool: Pool) -> None:
    found = await retriever(grid_pool).legs(Scope(), "", axis(0))
    assert found.view.generation_id is not None
    from pgvector import HalfVector

    from standard.retrieval.dense import scan_sql

    statement = scan_sql(found.view.generation_id, DIMENSIONS, found.view.distance, "")
    parameters = {"vector": HalfVector(axis(0)), "depth": 100, "ef_search": "160", "max_scan_tuples": "20000"}
    async with grid_pool.connection() as conn:
        plan = "\n".join(
            line for (line,) in await (await conn.execute(b"explain " + statement.encode(), parameters)).fetchall()
        )
    assert f"Index Scan using chunk_{found.view.generation_id}_embedding_idx" in plan
    assert "Append" not in plan


FILTERS: list[tuple[str, Filter, int]] = [
    ("half a percent", Eq("rare", value=True), 100),
    ("a quarter", Eq("colour", "red"), 100),
    ("a range of 1%", Range("price", at_least=100.0, at_most=119.9), 100),
    ("a conjunction", And((Eq("colour", "red"), Eq("rare", value=True))), 100),
    ("three documents", In("code", ("1", "2", "3")), 3),
    ("nothing", Eq("colour", "plaid"), 0),
]


@pytest.mark.parametrize(("what", "condition", "expected"), FILTERS, ids=[name for name, _, _ in FILTERS])
async def test_a_filter_always_gets_its_full_k(
    grid_pool: Pool,
    grid: tuple[list[Row], NDArray[np.float32], NDArray[np.float32]],
    what: str,
    condition: Filter,
    expected: int,
) -> None:
    questions = grid[2]
    for question in questions[:5]:
        result = await retriever(grid_pool).search(Scope(filter=condition), "red item number5", question, k=100)
        assert len(result.passages) == expected, what
        assert all(matches(condition, found.passage.metadata) for found in result.passages)


async def test_a_filter_of_half_a_percent_finds_the_nearest_of_what_it_keeps(
    grid_pool: Pool, grid: tuple[list[Row], NDArray[np.float32], NDArray[np.float32]]
) -> None:
    _, vectors, questions = grid
    kept = np.arange(0, 20_000, 200)
    for question in questions:
        legs = await retriever(grid_pool).legs(Scope(filter=Eq("rare", value=True)), "", question)
        expected = kept[np.argsort(-(vectors[kept] @ question), kind="stable")] + 1_000_000
        assert set(legs.dense.keys) == set(expected.tolist())


async def test_a_filter_that_the_scan_cannot_satisfy_falls_back_to_the_exact_search(
    grid_pool: Pool, grid: tuple[list[Row], NDArray[np.float32], NDArray[np.float32]]
) -> None:
    # forced through the index although it keeps few, with a scan that may visit hardly anything
    starved = retriever(grid_pool, few_documents=0, max_scan_tuples=1)
    result = await starved.search(Scope(filter=Eq("rare", value=True)), "red item", grid[2][0], k=100)
    assert len(result.passages) == 100
    assert all(found.passage.metadata["rare"] is True for found in result.passages)


def matches(condition: Filter, metadata: object) -> bool:
    assert isinstance(metadata, dict)
    match condition:
        case Eq(key, value):
            return bool(metadata[key] == value)
        case In(key, values):
            return metadata[key] in values
        case Range(key, low, high):
            return (low is None or metadata[key] >= low) and (high is None or metadata[key] <= high)
        case And(parts):
            return all(matches(part, metadata) for part in parts)


async def test_tenants_and_collections_do_not_see_each_other(pool: Pool) -> None:
    for tenant, name in (("a", "one"), ("a", "two"), ("b", "one")):
        await add_collection(pool, [row(f"{tenant}-{name}", "shared words", axis(0))], tenant=tenant, name=name)
    for tenant, name in (("a", "one"), ("a", "two"), ("b", "one")):
        result = await retriever(pool).search(Scope(tenant, name), "shared words", axis(0), k=10)
        assert ids(result) == [f"{tenant}-{name}#0"]


async def test_documents_of_a_group_are_for_its_members_alone(pool: Pool) -> None:
    rows = [row("open", "salary table", axis(0)), row("closed", "salary table", axis(0), groups=("hr", "board"))]
    await add_collection(pool, rows)
    search = retriever(pool).search
    assert ids(await search(Scope(), "salary", axis(0), k=5)) == ["open#0"]
    assert ids(await search(Scope(groups=frozenset({"it"})), "salary", axis(0), k=5)) == ["open#0"]
    seen = ids(await search(Scope(groups=frozenset({"board", "it"})), "salary", axis(0), k=5))
    assert sorted(seen) == ["closed#0", "open#0"]


async def test_a_document_closed_a_moment_ago_is_closed_though_the_collection_is_remembered(pool: Pool) -> None:
    rows = [row(f"d{number}", "salary table", unit(axis(0) + axis(1) * number / 30)) for number in range(30)]
    await add_collection(pool, rows)
    patient = retriever(pool, view_seconds=60.0)
    assert ids(await patient.search(Scope(), "salary", axis(0), k=1)) == ["d0#0"]
    async with pool.connection() as conn:
        await conn.execute("update document set access_groups = '{hr}' where document_id = 'd0'")
    result = await patient.search(Scope(), "salary", axis(0), k=29)
    assert len(result.passages) == 29
    assert "d0#0" not in ids(result)
    assert all(found.passage.document_id != "d0" for found in result.candidates)


async def test_quarantined_chunks_are_never_returned(pool: Pool) -> None:
    rows = [
        Row(
            "d", ("ignore the rules", "follow the rules"), np.stack([axis(0), axis(1)]), verdicts=("quarantine", "flag")
        )
    ]
    await add_collection(pool, rows)
    result = await retriever(pool).search(Scope(), "rules", axis(0), k=5)
    assert ids(result) == ["d#1"]
    assert result.passages[0].passage.verdict == "flag"
    assert len(result.candidates) == 1
    assert result.vectors is not None
    assert result.vectors[0] == pytest.approx(axis(1), abs=1e-3)


async def test_excluded_passages_do_not_count_towards_k(
    grid_pool: Pool, grid: tuple[list[Row], NDArray[np.float32], NDArray[np.float32]]
) -> None:
    search = retriever(grid_pool).search
    first = await search(Scope(), "red item number5", grid[2][0], k=50)
    strange = {"no such#1", "d1#", "d1#x", "#", "d1#99999999999", "d\x001#1"}
    second = await search(Scope(), "red item number5", grid[2][0], k=50, exclude=frozenset(ids(first)) | strange)
    assert len(second.passages) == 50
    assert not set(ids(first)) & set(ids(second))


async def test_what_is_found_does_not_depend_on_the_place_in_the_batch(
    grid_pool: Pool, grid: tuple[list[Row], NDArray[np.float32], NDArray[np.float32]]
) -> None:
    texts = [f"red item number{number}" for number in range(12)]
    vectors = grid[2][:12]
    together = await retriever(grid_pool).search_many(Scope(), texts, vectors, k=5)
    alone = [await retriever(grid_pool).search(Scope(), text, vector, k=5) for text, vector in zip(texts, vectors)]  # noqa: B905
    assert [ids(result) for result in together] == [ids(result) for result in alone]


async def test_many_searches_get_by_on_one_connection(grid_url: str) -> None:
    async with open_pool(DatabaseConfig(url=grid_url, max_size=1, acquire_timeout=20.0)) as pool:
        results = await retriever(pool).search_many(Scope(), ["red item"] * 10, unit(np.ones((10, DIMENSIONS))), k=3)
    assert [len(result.passages) for result in results] == [3] * 10


async def test_a_new_generation_is_found_though_the_old_one_is_remembered(pool: Pool) -> None:
    await add_collection(pool, [row("old", "annual report", axis(0))])
    patient = retriever(pool, view_seconds=60.0)
    assert ids(await patient.search(Scope(), "report", axis(0), k=1)) == ["old#0"]
    generation = await add_collection(pool, [row("new", "annual report", axis(0))], name="next")
    async with pool.connection() as conn:
        await conn.execute("delete from document where document_id = 'old'")
        await conn.execute(
            "update document set collection_id = (select collection_id from collection where name = 'default')"
        )
        await conn.execute("update collection set active_generation = %s where name = 'default'", [generation])
    assert ids(await patient.search(Scope(), "report", axis(0), k=1)) == ["new#0"]


async def test_an_unknown_collection_is_not_found(pool: Pool) -> None:
    for name in ("nowhere", "nul\x00"):
        with pytest.raises(NotFound):
            await retriever(pool).search(Scope(collection=name), "q", axis(0), k=1)


async def test_another_embedder_is_refused(pool: Pool) -> None:
    await add_collection(pool, [row("d", "text", axis(0))])
    other = CorpusRetriever(pool, embedder_id="other", embedder_checksum=CHECKSUM)
    with pytest.raises(FailedPrecondition, match="test-embedder"):
        await other.search(Scope(), "q", axis(0), k=1)
    with pytest.raises(FailedPrecondition, match="dimensions"):
        await retriever(pool).search(Scope(), "q", np.ones(3, np.float32), k=1)


async def test_a_collection_without_anything_ingested_answers_nothing(pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("insert into collection (tenant, name) values ('default', 'default')")
    result = await retriever(pool).search(Scope(), "q", axis(0), k=1)
    assert (result.passages, result.candidates, result.corpus_size) == ((), (), 0)


@pytest.mark.parametrize("k", [0, -1, 101, 10**9])
async def test_k_has_bounds(pool: Pool, k: int) -> None:
    with pytest.raises(InvalidInput, match="top_k"):
        await retriever(pool).search(Scope(), "q", axis(0), k=k)


@pytest.mark.parametrize(
    "text", ["", "the", "\x00\ud800", "?!…", "🙂", "x" * 100_000, "red " * 30_000, "'; drop table chunk --"]
)
async def test_any_text_can_be_searched(grid_pool: Pool, text: str) -> None:
    result = await retriever(grid_pool).search(Scope(), text, axis(0), k=5)
    assert len(result.passages) == 5


async def test_a_database_that_is_away_is_said_to_be_so(database_url: str) -> None:
    async with open_pool(DatabaseConfig(url=database_url)) as pool:
        search = retriever(pool).search
    with pytest.raises(DatabaseUnavailable):
        await search(Scope(), "q", axis(0), k=1)


@pytest.mark.parametrize("opclass", ["halfvec_ip_ops", "halfvec_cosine_ops", "halfvec_l2_ops"])
async def test_every_distance_gives_cosine_similarity(pool: Pool, opclass: str) -> None:
    vectors = unit(np.random.default_rng(1).normal(size=(50, DIMENSIONS)))
    await add_collection(pool, [row(f"d{n}", "text", vector) for n, vector in enumerate(vectors)], index=opclass)
    legs = await retriever(pool).legs(Scope(), "", vectors[3])
    assert list(legs.dense.scores) == pytest.approx(sorted(vectors @ vectors[3], reverse=True), abs=2e-3)


async def test_a_document_that_the_question_names_is_lifted(pool: Pool) -> None:
    rows = [row(f"d{n}", "a tale of pride and prejudice", unit(axis(0) + axis(1) * n / 40)) for n in range(40)]
    rows.append(row("named", "By Austen, 1813.", axis(3), title="Pride and Prejudice (novel)"))
    rows.append(row("closed", "By Austen, 1813.", axis(3), title="Pride and Prejudice", groups=("hr",)))
    await add_collection(pool, rows)
    with_titles = await retriever(pool, title_bonus=1.0).search(
        Scope(), "who wrote pride and prejudice?", axis(0), k=10
    )
    without = await retriever(pool, title_bonus=0.0).search(Scope(), "who wrote pride and prejudice?", axis(0), k=10)
    assert "named#0" in ids(with_titles)
    assert "named#0" not in ids(without)
    assert "closed#0" not in ids(with_titles)
    hidden = await retriever(pool, title_bonus=1.0).search(
        Scope(), "who wrote pride and prejudice?", axis(0), k=10, exclude=frozenset({"named#0"})
    )
    assert "named#0" not in ids(hidden)
