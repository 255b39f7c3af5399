"""Collections: the named bodies of documents of a tenant, each bound to the embedder that made its vectors."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from standard.corpus.chunking import Chunking
from standard.corpus.lock import collection_lock
from standard.corpus.paging import check_page_size, read_token, write_token
from standard.database.pool import connection, the_row, transaction
from standard.domain.errors import AlreadyExists, DatabaseUnavailable, FailedPrecondition, InvalidInput, NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from standard.database.pool import Connection, Pool

PARTITIONED = ("chunk", "sentence", "posting")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
# Dropping partitions needs a moment without searches. Each attempt gives up before the server would look for deadlocks
# (after 1 s), so that no search is ever the one that is sacrificed.
_DROP_ATTEMPTS = 50
_DROP_LOCK_TIMEOUT = "300ms"


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What a collection remembers of its embedder: name, fingerprint, length of a vector (1-4,000)."""

    id: str
    checksum: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as it was when read. `chunker` says how its documents are cut (Chunking.describe).

    `scan_policy` is what is done about findings of the injection scan in it, "" for the installation's.
    """

    collection_id: int
    tenant: str
    name: str
    text_config: str
    generation_id: int
    embedder: EmbedderIdentity
    chunker: str
    document_count: int
    passage_count: int
    created_at: datetime
    scan_policy: str = ""


@dataclass(frozen=True, slots=True)
class CollectionPage:
    """Collections by name, and the token of the next page ("" = this was the last)."""

    collections: tuple[Collection, ...]
    next_page_token: str


_SELECT = """
select c.collection_id, c.tenant, c.name, c.text_config, g.generation_id, g.embedder_id, g.embedder_checksum,
    g.dimensions, g.chunker, (select count(*) from document d where d.collection_id = c.collection_id), g.chunk_count,
    c.created_at, coalesce(c.settings ->> 'scan_policy', '')
from collection c join generation g on g.generation_id = c.active_generation
"""


def _read(row: tuple[Any, ...]) -> Collection:
    collection_id, tenant, name, text_config, generation, model, checksum, dimensions, *rest = row
    identity = EmbedderIdentity(model, checksum, dimensions)
    return Collection(collection_id, tenant, name, text_config, generation, identity, *rest)


async def create_collection(
    pool: Pool,
    tenant: str,
    name: str,
    *,
    embedder: EmbedderIdentity,
    text_config: str = "english",
    chunking: Chunking | None = None,
) -> Collection:
    """Make an empty collection and return it.

    `text_config` is a text search configuration of the server (`english`, `german`, `simple` …), for the lexical leg.
    Raises InvalidInput for a bad name, vector length or configuration, AlreadyExists where the name is taken.
    """
    check_name(name)
    if not 1 <= embedder.dimensions <= 4000:
        raise InvalidInput("dimensions", "must be 1 to 4,000, the most that can be indexed")
    try:
        async with transaction(pool) as conn:
            known = await conn.execute("select 1 from pg_ts_config where cfgname = %s", [text_config])
            if await known.fetchone() is None:
                raise InvalidInput("text_config", f"the server has no text search configuration {text_config!r}")
            cursor = await conn.execute(
                "insert into collection (tenant, name, text_config) values (%s, %s, %s) returning collection_id",
                [tenant, name, text_config],
            )
            row = await the_row(cursor)
            await _make_generation(conn, row[0], embedder, chunking or Chunking())
    except psycopg.errors.UniqueViolation as problem:
        raise AlreadyExists(f"there is a collection {name!r} already") from problem
    return await get_collection(pool, tenant, name)


async def _make_generation(
    conn: Connection, collection_id: int, embedder: EmbedderIdentity, chunking: Chunking
) -> None:
    """Make the collection's active generation and its partitions."""
    cursor = await conn.execute(
        "insert into generation (collection_id, embedder_id, embedder_checksum, dimensions, chunker, state)"
        " values (%s, %s, %s, %s, %s, 'active') returning generation_id",
        [collection_id, embedder.id, embedder.checksum, embedder.dimensions, chunking.describe()],
    )
    row = await the_row(cursor)
    generation = int(row[0])
    await conn.execute(
        "update collection set active_generation = %s where collection_id = %s", [generation, collection_id]
    )
    for table in PARTITIONED:
        # made beside the partitioned table and attached: `partition of` would lock out every search meanwhile
        names = {"parent": sql.Identifier(table), "part": partition(table, generation), "id": sql.Literal(generation)}
        await conn.execute(sql.SQL("create table {part} (like {parent} including all)").format(**names))
        await conn.execute(sql.SQL("alter table {parent} attach partition {part} for values in ({id})").format(**names))


def partition(table: str, generation: int) -> sql.Identifier:
    """Return the name of a generation's partition of `table`, which is one of PARTITIONED."""
    return sql.Identifier(f"{table}_{generation}")


async def get_collection(pool: Pool, tenant: str, name: str) -> Collection:
    """Return a collection; raises NotFound."""
    async with connection(pool) as conn:
        cursor = await conn.execute(_SELECT.encode() + b"where c.tenant = %s and c.name = %s", [tenant, name])
        row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"there is no collection {name!r}")
    return _read(row)


async def ensure_collection(
    pool: Pool, tenant: str, name: str, *, embedder: EmbedderIdentity, text_config: str = "english"
) -> Collection:
    """Return the collection, made if there is none. Raises FailedPrecondition where it has another embedder."""
    try:
        collection = await get_collection(pool, tenant, name)
    except NotFound:
        try:
            return await create_collection(pool, tenant, name, embedder=embedder, text_config=text_config)
        except AlreadyExists:  # somebody was quicker
            collection = await get_collection(pool, tenant, name)
    check_embedder(collection, embedder)
    return collection


def check_embedder(collection: Collection, embedder: EmbedderIdentity) -> None:
    """Raise FailedPrecondition, with the way out, where vectors of `embedder` do not belong with the collection's."""
    if collection.embedder == embedder:
        return
    was, now = collection.embedder, embedder
    difference = (
        f"the embedder {was.id!r}; this one is {now.id!r}"
        if was.id != now.id
        else f"another build of {was.id!r} (checksum {was.checksum[:12]}, {was.dimensions} dimensions; "
        f"this one: {now.checksum[:12]}, {now.dimensions})"
    )
    raise FailedPrecondition(
        f"the collection {collection.name!r} was made with {difference}. Their vectors cannot be compared: configure "
        f"the embedder it was made with, ingest into another collection, or delete this one and ingest again"
    )


async def list_collections(pool: Pool, tenant: str, *, page_size: int = 0, page_token: str = "") -> CollectionPage:
    """Return a page of the tenant's collections, by name. Raises InvalidInput for a bad size or token."""
    size = check_page_size(page_size)
    after = read_token(page_token)
    async with connection(pool) as conn:
        cursor = await conn.execute(
            _SELECT.encode() + b"where c.tenant = %s and c.name > %s order by c.name limit %s",
            [tenant, after, size + 1],
        )
        found = [_read(row) for row in await cursor.fetchall()]
    token = write_token(found[size - 1].name) if len(found) > size else ""
    return CollectionPage(tuple(found[:size]), token)


async def set_scan_policy(pool: Pool, tenant: str, name: str, policy: str) -> Collection:
    """Set what is done about findings of the injection scan in a collection, "" = as everywhere; return it.

    Counts for what is ingested or re-scanned from now on. Raises NotFound.
    """
    async with connection(pool) as conn:
        await conn.execute(
            "update collection set settings = case when %(policy)s::text = '' then settings - 'scan_policy'"
            " else settings || jsonb_build_object('scan_policy', %(policy)s::text) end"
            " where tenant = %(tenant)s and name = %(name)s",
            {"policy": policy, "tenant": tenant, "name": name},
        )
    return await get_collection(pool, tenant, name)


async def delete_collection(pool: Pool, tenant: str, name: str) -> None:
    """Delete a collection with everything in it.

    Raises NotFound; Overloaded while an ingest of it runs; DatabaseUnavailable where searches leave no gap for it.
    """
    collection = await get_collection(pool, tenant, name)
    async with collection_lock(pool, collection.collection_id, wait_seconds=0):
        for _ in range(_DROP_ATTEMPTS):
            try:
                await _delete(pool, collection.collection_id)
            except psycopg.errors.LockNotAvailable:
                await asyncio.sleep(0.1)
            else:
                return
    raise DatabaseUnavailable(f"the collection {name!r} is too busy to be deleted; try again", retry_after_seconds=10.0)


async def _delete(pool: Pool, collection_id: int) -> None:
    async with pool.connection() as conn, conn.transaction():
        await conn.execute("select set_config('statement_timeout', '0', true)")
        cursor = await conn.execute("select generation_id from generation where collection_id = %s", [collection_id])
        parts = [partition(table, row[0]) for row in await cursor.fetchall() for table in PARTITIONED]
        await conn.execute("delete from collection where collection_id = %s", [collection_id])
        await conn.execute("select set_config('lock_timeout', %s, true)", [_DROP_LOCK_TIMEOUT])
        parents = sql.SQL(", ").join(sql.Identifier(table) for table in PARTITIONED)
        await conn.execute(sql.SQL("lock table {} in access exclusive mode").format(parents))
        await conn.execute(sql.SQL("drop table if exists {}").format(sql.SQL(", ").join(parts)))


def check_name(name: str) -> None:
    """Raise InvalidInput unless `name` can name a collection."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            "collection", "a name has 1 to 128 letters, digits, '.', '_' or '-', and begins with a letter or digit"
        )
