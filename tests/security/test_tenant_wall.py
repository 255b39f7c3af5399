"""Row-level security behind the conditions: a statement that forgets its tenant still reads nobody else's text."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from standard.corpus.collections import delete_collection, get_collection
from standard.corpus.document import SourceDocument
from standard.corpus.documents import delete_documents, get_document
from standard.corpus.rescan import rescan
from standard.database.migrate import migrate, wall_problem
from standard.database.pool import DatabaseConfig, connection, open_pool, tenant_rows, transaction
from standard.domain.passage import Scope
from standard.retrieval.hydrate import hydrate
from standard.retrieval.reader import CorpusReader
from standard.retrieval.retriever import CorpusRetriever
from standard.retrieval.visibility import Visibility
from standard.sandbox.policy import POLICIES, policed
from standard.sandbox.scan import scan_chunk
from tests.support.corpora import assert_consistent, fill
from tests.support.hashing_embedder import HashingEmbedder
from tests.support.transaction_pooler import transaction_pooler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from standard.database.pool import Pool

TABLES = ("document", "chunk", "sentence", "posting")
OURS, THEIRS = Scope("ours"), Scope("theirs")
NOTHING = Visibility("true", {})
"""The condition of a query that forgot tenant, collection, filter and groups."""


async def two_tenants(pool: Pool) -> None:
    for tenant in ("ours", "theirs"):
        text = f"The payroll of {tenant} is due on Friday. The vault of {tenant} is blue."
        await fill(pool, HashingEmbedder(), [SourceDocument("payroll", "Payroll", text)], tenant=tenant)


async def generation_and_keys(pool: Pool, tenant: str) -> tuple[int, list[int]]:
    generation = (await get_collection(pool, tenant, "default")).generation_id
    async with connection(pool) as conn:
        cursor = await conn.execute("select chunk_key from chunk where generation_id = %s", [generation])
        return generation, [row[0] for row in await cursor.fetchall()]


async def test_a_query_that_forgets_the_tenant_reads_nothing_of_another(pool: Pool) -> None:
    await two_tenants(pool)
    async with connection(pool) as conn:
        assert conn.walled
        for table in TABLES:
            statement = f"select * from {table}".encode()
            everything = await (await conn.execute(statement)).fetchall()
            ours = await tenant_rows(conn, "ours", statement)
            theirs = await tenant_rows(conn, "theirs", statement)
            assert ours
            assert theirs
            assert len(ours) + len(theirs) == len(everything), table
            assert await tenant_rows(conn, "", statement) == []
            assert await tenant_rows(conn, "ours' or '1'='1", statement) == []
        texts = [row[0] for row in await tenant_rows(conn, "ours", b"select text from document")]
        assert len(texts) == 1
        assert "theirs" not in texts[0]


async def test_the_statement_that_reads_text_keeps_to_the_tenant_without_its_condition(pool: Pool) -> None:
    await two_tenants(pool)
    generation, keys = await generation_and_keys(pool, "theirs")
    async with connection(pool) as conn:
        stolen = await hydrate(conn, generation, replace(NOTHING, tenant="ours"), keys)
        rightful = await hydrate(conn, generation, replace(NOTHING, tenant="theirs"), keys)
        unnamed = await hydrate(conn, generation, NOTHING, keys)
    assert stolen.passages == {}
    assert unnamed.passages == {}
    assert len(rightful.passages) == len(keys)


async def test_a_search_whose_every_condition_is_lost_brings_nothing_of_another_tenant(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_tenants(pool)
    embedder = HashingEmbedder()
    retriever = CorpusRetriever(pool, embedder_id=embedder.id, embedder_checksum=embedder.checksum)
    reader = CorpusReader(pool, retriever)
    found = await retriever.directory.view("theirs", "default")

    async def view_of_another(*_: object, **__: object) -> object:
        return found

    monkeypatch.setattr(retriever.directory, "view", view_of_another)
    forgotten = "standard.retrieval.retriever.visibility"
    monkeypatch.setattr(forgotten, lambda scope, _: replace(NOTHING, tenant=scope.tenant))
    question = "When is the payroll due?"
    vector = (await embedder.embed_queries([question]))[0]
    assert (await retriever.search(OURS, question, vector, k=5)).passages == ()
    assert await reader.keyword_search(OURS, "payroll", k=5) == ()
    assert await reader.semantic_search(OURS, question, vector, k=5) == ()
    assert await reader.find_linked(OURS, [], question="Payroll", vector=vector, k=5) == ()
    assert await reader.mentioned(OURS, ["payroll vault"]) == frozenset()
    rightful = (await retriever.search(THEIRS, question, vector, k=5)).passages
    assert rightful, "else the test shows nothing"


async def test_nothing_of_the_role_is_left_behind(pool: Pool) -> None:
    await two_tenants(pool)
    asks = b"select current_user::text, current_setting('pointsman.tenant', true)"
    async with connection(pool) as conn:
        before = await (await conn.execute(asks)).fetchone()
        assert await tenant_rows(conn, "ours", asks) == [("pointsman_reader", "ours")]
        assert await (await conn.execute("select current_user::text")).fetchone() == (before or ("",))[:1]
        with pytest.raises(psycopg.errors.DivisionByZero):
            await tenant_rows(conn, "ours", b"select 1 / 0")
        assert await (await conn.execute("select current_user::text")).fetchone() == (before or ("",))[:1]
    async with transaction(pool) as conn:
        assert await tenant_rows(conn, "ours", asks) == [("pointsman_reader", "ours")]
        assert await (await conn.execute("select current_user::text")).fetchone() == (before or ("",))[:1]
        await conn.execute("update document set title = 'New' where document_id = 'payroll'")
    async with connection(pool) as conn:
        waiting = asyncio.create_task(tenant_rows(conn, "ours", b"select pg_sleep(30)"))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with connection(pool) as conn:
        assert len(await tenant_rows(conn, "ours", b"select * from document")) == 1


async def test_the_wall_stands_behind_a_pooler_in_transaction_mode(database_url: str) -> None:
    async with open_pool(DatabaseConfig(url=database_url)) as direct:
        await two_tenants(direct)
    async with transaction_pooler(database_url) as (url, _), open_pool(DatabaseConfig(url=url)) as pool:
        for _ in range(4):
            async with connection(pool) as conn:
                assert conn.behind_pooler
                assert conn.walled
                rows = await tenant_rows(conn, "ours", b"select text from document")
                assert len(rows) == 1
            async with connection(pool) as conn:
                assert len(await (await conn.execute("select text from document")).fetchall()) == 2
        assert (await get_document(pool, "ours", "default", "payroll")).text is not None


@pytest.fixture
def plain_owner_url(empty_database_url: str) -> Iterator[str]:
    """A database that belongs to an ordinary user, who may create no roles."""
    database = urlsplit(empty_database_url).path.lstrip("/")
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute("create extension vector")
        conn.execute("drop role if exists plain_owner")
        conn.execute("create role plain_owner login password 'plain'")
        conn.execute(f"alter database {database} owner to plain_owner".encode())
        conn.execute("grant all on schema public to plain_owner")
    parts = urlsplit(empty_database_url)
    _, _, rest = parts.netloc.rpartition("@")
    yield urlunsplit(parts._replace(netloc=f"plain_owner:plain@{rest}"))
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute("drop owned by plain_owner cascade")
        conn.execute(f"alter database {database} owner to pointsman".encode())
        conn.execute("drop role plain_owner")


@asynccontextmanager
async def owners_pool(url: str) -> AsyncIterator[Pool]:
    async with open_pool(DatabaseConfig(url=url)) as pool:
        yield pool


@pytest.mark.parametrize("inherits", ["with inherit false", ""])
async def test_where_the_user_may_not_have_the_role_all_goes_on_and_the_way_out_is_named(
    plain_owner_url: str, empty_database_url: str, inherits: str
) -> None:
    report = await migrate(plain_owner_url)
    assert any("grant pointsman_reader to plain_owner" in warning for warning in report.warnings)
    async with owners_pool(plain_owner_url) as pool:
        await two_tenants(pool)
        async with connection(pool) as conn:
            assert not conn.walled
            assert await wall_problem(conn) != ""
        assert (await get_document(pool, "ours", "default", "payroll")).text is not None
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute(f"grant pointsman_reader to plain_owner {inherits}".encode())
    assert (await migrate(plain_owner_url)).warnings == ()
    async with owners_pool(plain_owner_url) as pool:
        async with connection(pool) as conn:
            assert conn.walled
            assert len(await tenant_rows(conn, "ours", b"select * from document")) == 1
        # ingest and administration by an owner whom row security is forced upon
        await fill(pool, HashingEmbedder(), [SourceDocument("more", "More", "More of it.")], tenant="ours")
        collection = await get_collection(pool, "ours", "default")
        assert (await rescan(pool, collection, policed(scan_chunk, POLICIES["standard"], "v"), "v")).passages == 2
        assert await delete_documents(pool, "ours", "default", ["more"]) == 1
        await assert_consistent(pool)
        await delete_collection(pool, "theirs", "default")
