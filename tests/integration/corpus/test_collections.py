"""Collections and their documents over a real PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

from standard.corpus.collections import (
    EmbedderIdentity,
    check_embedder,
    create_collection,
    delete_collection,
    ensure_collection,
    get_collection,
    list_collections,
)
from standard.corpus.document import SourceDocument
from standard.corpus.documents import delete_documents, get_document, list_documents
from standard.database.pool import Pool, transaction
from standard.domain.errors import AlreadyExists, FailedPrecondition, InvalidInput, NotFound, Overloaded
from tests.support.corpora import assert_consistent, collection_of, fill, identity
from tests.support.hashing_embedder import HashingEmbedder

MINI = EmbedderIdentity("mini", "abc", 384)


def documents(count: int) -> list[SourceDocument]:
    return [SourceDocument(f"doc-{n:03}", f"Title {n}", f"This is document number{n}.") for n in range(count)]


async def tables(pool: Pool) -> set[str]:
    async with pool.connection() as conn:
        cursor = await conn.execute("select relname from pg_class where relname ~ '^(chunk|sentence|posting)_[0-9]+$'")
        return {row[0] for row in await cursor.fetchall()}


async def test_a_collection_is_made_read_and_deleted_with_all_it_holds(pool: Pool) -> None:
    made = await create_collection(pool, "acme", "handbook", embedder=MINI, text_config="german")
    assert (made.tenant, made.name, made.embedder, made.text_config) == ("acme", "handbook", MINI, "german")
    assert (made.document_count, made.passage_count) == (0, 0)
    assert await get_collection(pool, "acme", "handbook") == made
    assert len(await tables(pool)) == 3
    await delete_collection(pool, "acme", "handbook")
    assert await tables(pool) == set()
    with pytest.raises(NotFound):
        await get_collection(pool, "acme", "handbook")


async def test_tenants_do_not_see_each_other(pool: Pool) -> None:
    await create_collection(pool, "acme", "same", embedder=MINI)
    await create_collection(pool, "umbrella", "same", embedder=MINI)
    await create_collection(pool, "umbrella", "other", embedder=MINI)
    assert [row.name for row in (await list_collections(pool, "acme")).collections] == ["same"]
    await delete_collection(pool, "umbrella", "same")
    assert (await get_collection(pool, "acme", "same")).tenant == "acme"
    with pytest.raises(NotFound):
        await get_collection(pool, "acme", "other")


async def test_a_name_that_is_taken_is_refused_and_found_where_that_is_asked(pool: Pool) -> None:
    made = await create_collection(pool, "acme", "a", embedder=MINI)
    with pytest.raises(AlreadyExists, match="there is a collection 'a' already"):
        await create_collection(pool, "acme", "a", embedder=MINI)
    assert await ensure_collection(pool, "acme", "a", embedder=MINI) == made
    found = await asyncio.gather(*(ensure_collection(pool, "acme", "new", embedder=MINI) for _ in range(5)))
    assert len({row.collection_id for row in found}) == 1


@pytest.mark.parametrize("name", ["", "-a", "a b", "ä", "a/b", "a" * 129, "a\n", "'; drop table chunk"])
async def test_a_bad_name_is_refused(pool: Pool, name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await create_collection(pool, "acme", name, embedder=MINI)
    assert refused.value.field == "collection"


@pytest.mark.parametrize(("dimensions", "text_config"), [(0, "english"), (4001, "english"), (384, "klingon")])
async def test_what_the_server_cannot_serve_is_refused(pool: Pool, dimensions: int, text_config: str) -> None:
    with pytest.raises(InvalidInput):
        await create_collection(
            pool, "acme", "a", embedder=EmbedderIdentity("x", "y", dimensions), text_config=text_config
        )
    assert await tables(pool) == set()


async def test_collections_come_in_pages(pool: Pool) -> None:
    for number in range(5):
        await create_collection(pool, "acme", f"c{number}", embedder=MINI)
    names, token = [], ""
    while True:
        page = await list_collections(pool, "acme", page_size=2, page_token=token)
        names.append([row.name for row in page.collections])
        if not (token := page.next_page_token):
            break
    assert names == [["c0", "c1"], ["c2", "c3"], ["c4"]]


async def test_another_build_of_the_embedder_is_another_embedder(pool: Pool) -> None:
    made = await create_collection(pool, "acme", "a", embedder=MINI)
    check_embedder(made, MINI)
    with pytest.raises(FailedPrecondition, match="another build of 'mini'"):
        check_embedder(made, EmbedderIdentity("mini", "def", 384))


async def test_a_collection_is_not_deleted_under_an_ingest(pool: Pool) -> None:
    running = asyncio.create_task(fill(pool, HashingEmbedder(seconds_a_passage=0.01), documents(60)))
    await asyncio.sleep(0.3)
    with pytest.raises(Overloaded):
        await delete_collection(pool, "default", "default")
    await running
    await delete_collection(pool, "default", "default")


async def test_a_collection_is_deleted_as_soon_as_searches_leave_a_gap(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(3))
    async with transaction(pool) as conn:
        await conn.execute("select count(*) from chunk")  # holds a lock until the transaction ends
        deleting = asyncio.create_task(delete_collection(pool, "default", "default"))
        await asyncio.sleep(0.7)
        assert not deleting.done()
    await deleting
    assert await tables(pool) == set()


async def test_making_a_collection_does_not_wait_for_a_running_search(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(3))
    async with transaction(pool) as conn:
        await conn.execute("select count(*) from chunk join document using (document_key)")
        async with asyncio.timeout(5):
            await create_collection(pool, "acme", "meanwhile", embedder=MINI)


async def test_documents_come_in_pages_that_stay_put_while_others_come_and_go(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(5))
    first = await list_documents(pool, "default", "default", page_size=2)
    assert [row.document_id for row in first.documents] == ["doc-000", "doc-001"]
    assert all(row.text is None for row in first.documents)
    await delete_documents(pool, "default", "default", ["doc-000"])
    await fill(pool, HashingEmbedder(), [SourceDocument("a-new-one", "", "New.")])
    rest = await list_documents(pool, "default", "default", page_size=10, page_token=first.next_page_token)
    assert [row.document_id for row in rest.documents] == ["doc-002", "doc-003", "doc-004"]
    assert rest.next_page_token == ""


async def test_a_document_can_be_read_back_exactly(pool: Pool) -> None:
    given = SourceDocument(
        "a/b", "Title", "# Head\n\nText 😀.", "https://x.example", {"n": 1.5, "deep": {"a": []}}, ("b", "a")
    )
    await fill(pool, HashingEmbedder(), [given])
    stored = await get_document(pool, "default", "default", "a/b")
    assert (stored.title, stored.text, stored.uri, stored.metadata, set(stored.groups)) == (
        given.title,
        given.text,
        given.uri,
        given.metadata,
        {"a", "b"},
    )
    assert stored.content_hash == given.content_hash()
    with pytest.raises(NotFound, match="no document 'nope'"):
        await get_document(pool, "default", "default", "nope")


async def test_a_document_of_a_group_exists_for_that_group_alone(pool: Pool) -> None:
    public, secret = (
        SourceDocument("public", "", "For all."),
        SourceDocument("secret", "", "For few.", groups=("board",)),
    )
    await fill(pool, HashingEmbedder(), [public, secret])

    async def seen_by(groups: frozenset[str] | None) -> list[str]:
        page = await list_documents(pool, "default", "default", groups=groups)
        return [row.document_id for row in page.documents]

    assert await seen_by(frozenset()) == ["public"]
    assert await seen_by(frozenset({"staff"})) == ["public"]
    assert await seen_by(frozenset({"board", "staff"})) == ["public", "secret"]
    assert await seen_by(None) == ["public", "secret"]
    with pytest.raises(NotFound):
        await get_document(pool, "default", "default", "secret", groups=frozenset({"staff"}))
    assert await delete_documents(pool, "default", "default", ["secret"], groups=frozenset()) == 0
    assert await delete_documents(pool, "default", "default", ["secret"], groups=frozenset({"board"})) == 1


async def test_deleted_documents_leave_nothing_behind(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(20))
    assert await delete_documents(pool, "default", "default", ["doc-003", "doc-004", "unknown"]) == 2
    assert (await collection_of(pool)).document_count == 18
    await assert_consistent(pool)
    with pytest.raises(InvalidInput):
        await delete_documents(pool, "default", "default", [str(n) for n in range(1001)])


async def test_deleting_and_ingesting_at_once_is_safe(pool: Pool) -> None:
    await fill(pool, HashingEmbedder(), documents(100))

    async def delete() -> None:
        for number in range(0, 100, 5):
            await delete_documents(pool, "default", "default", [f"doc-{number + n:03}" for n in range(5)])

    changed = [SourceDocument(row.document_id, row.title, f"{row.text} Changed.") for row in documents(100)]
    await asyncio.gather(delete(), fill(pool, HashingEmbedder(), changed))
    await assert_consistent(pool)


async def test_identity_of_an_embedder_is_what_a_collection_keeps(pool: Pool) -> None:
    embedder = HashingEmbedder()
    await fill(pool, embedder, documents(1))
    assert (await collection_of(pool)).embedder == identity(embedder)
