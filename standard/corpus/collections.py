"""Collections: the named bodies of documents of a tenant, each bound to the embedder that made its vectors."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from standard.corpus.chunking import Chunking
from standard.corpus.lock import collection_lock
from standard.corpus.paging import check_page_size, read_token, write_token
from standard.database.pool import connection, the_row, transaction
from standard.domain.errors import AlreadyExists, DatabaseUnavailable, FailedPrecondition, InvalidInput, NotFound
from standard.domain.question import PLAIN, AnswerStyle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
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
class EmbedderSpec:
    """How an embedder is opened, as [embedding] names one; never with a key.

    `named`: `model` is the NAME of a section [embedders.NAME] of the settings, which say the rest.
    """

    model: str
    base_url: str = ""
    dimensions: int | None = None
    max_tokens: int | None = None
    named: bool = False

    def describe(self) -> dict[str, Any]:
        """What a generation keeps: JSON values, those that are unset left out."""
        return {key: value for key, value in asdict(self).items() if value}


def read_spec(kept: Mapping[str, Any] | None) -> EmbedderSpec | None:
    """Read what `EmbedderSpec.describe` wrote; None where nothing was kept."""
    if kept is None:
        return None
    known = {each.name for each in fields(EmbedderSpec)}
    return EmbedderSpec(**{key: value for key, value in kept.items() if key in known})


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as it was when read. `chunker` says how its documents are cut (Chunking.describe).

    `scan_policy` is what is done about findings of the injection scan in it, "" for the installation's.
    `embedder_spec` opens its embedder again, None where that is the process's own. `style` is how its answers are
    written.
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
    embedder_spec: EmbedderSpec | None = None
    style: AnswerStyle = PLAIN


@dataclass(frozen=True, slots=True)
class CollectionPage:
    """Collections by name, and the token of the next page ("" = this was the last)."""

    collections: tuple[Collection, ...]
    next_page_token: str


_SELECT = """
select c.collection_id, c.tenant, c.name, c.text_config, g.generation_id, g.embedder_id, g.embedder_checksum,
    g.dimensions, g.chunker, (select count(*) from document d where d.collection_id = c.collection_id), g.chunk_count,
    c.created_at, c.settings, g.embedder
from collection c join generation g on g.generation_id = {generation}
"""
_ACTIVE = _SELECT.format(generation="c.active_generation").encode()
_OF_GENERATION = _SELECT.format(generation="%s").encode() + b"where c.collection_id = g.collection_id"


def _read(row: tuple[Any, ...]) -> Collection:
    collection_id, tenant, name, text_config, generation, *rest = row
    model, checksum, dimensions, chunker, documents, passages, created_at, settings, spec = rest
    return Collection(
        collection_id=collection_id,
        tenant=tenant,
        name=name,
        text_config=text_config,
        generation_id=generation,
        embedder=EmbedderIdentity(model, checksum, dimensions),
        chunker=chunker,
        document_count=documents,
        passage_count=passages,
        created_at=created_at,
        scan_policy=settings.get("scan_policy", ""),
        embedder_spec=read_spec(spec),
        style=read_style(settings),
    )


def read_style(settings: Mapping[str, Any]) -> AnswerStyle:
    """How a collection's answers are written, by its settings."""
    return AnswerStyle(settings.get("answer_instructions", ""), settings.get("answer_language", ""))


async def create_collection(
    pool: Pool,
    tenant: str,
    name: str,
    *,
    embedder: EmbedderIdentity,
    text_config: str = "english",
    chunking: Chunking | None = None,
    style: AnswerStyle = PLAIN,
) -> Collection:
    """Make an empty collection and return it. `style` comes from standard.corpus.style, which checks it.

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
                "insert into collection (tenant, name, text_config, settings) values (%s, %s, %s, %s)"
                " returning collection_id",
                [tenant, name, text_config, Jsonb(_style_settings(style))],
            )
            row = await the_row(cursor)
            generation = await make_generation(conn, row[0], embedder, (chunking or Chunking()).describe())
            await conn.execute(
                "update collection set active_generation = %s where collection_id = %s", [generation, row[0]]
            )
    except psycopg.errors.UniqueViolation as problem:
        raise AlreadyExists(f"there is a collection {name!r} already") from problem
    return await get_collection(pool, tenant, name)


async def make_generation(
    conn: Connection,
    collection_id: int,
    embedder: EmbedderIdentity,
    chunker: str,
    *,
    spec: EmbedderSpec | None = None,
    state: Literal["active", "building"] = "active",
) -> int:
    """Make a generation of a collection with its partitions, and return its id; it does not answer yet."""
    cursor = await conn.execute(
        "insert into generation (collection_id, embedder_id, embedder_checksum, dimensions, chunker, state, embedder)"
        " values (%s, %s, %s, %s, %s, %s, %s) returning generation_id",
        [
            collection_id,
            embedder.id,
            embedder.checksum,
            embedder.dimensions,
            chunker,
            state,
            None if spec is None else Jsonb(spec.describe()),
        ],
    )
    row = await the_row(cursor)
    generation = int(row[0])
    for table in PARTITIONED:
        # made beside the partitioned table and attached: `partition of` would lock out every search meanwhile
        names = {"parent": sql.Identifier(table), "part": partition(table, generation), "id": sql.Literal(generation)}
        await conn.execute(sql.SQL("create table {part} (like {parent} including all)").format(**names))
        await conn.execute(sql.SQL("alter table {parent} attach partition {part} for values in ({id})").format(**names))
    return generation


def partition(table: str, generation: int) -> sql.Identifier:
    """Return the name of a generation's partition of `table`, which is one of PARTITIONED."""
    return sql.Identifier(f"{table}_{generation}")


async def get_collection(pool: Pool, tenant: str, name: str) -> Collection:
    """Return a collection; raises NotFound."""
    async with connection(pool) as conn:
        cursor = await conn.execute(_ACTIVE + b"where c.tenant = %s and c.name = %s", [tenant, name])
        row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"there is no collection {name!r}")
    return _read(row)


async def collection_at(pool: Pool, generation: int) -> Collection:
    """Return a collection as one of its generations has it, which need not be the active one; raises NotFound."""
    async with connection(pool) as conn:
        row = await (await conn.execute(_OF_GENERATION, [generation])).fetchone()
    if row is None:
        raise NotFound("the generation of the collection is gone")
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
        f"the embedder it was made with, change the collection's (pointsman reembed start), ingest into another "
        f"collection, or delete this one and ingest again"
    )


async def list_collections(pool: Pool, tenant: str, *, page_size: int = 0, page_token: str = "") -> CollectionPage:
    """Return a page of the tenant's collections, by name. Raises InvalidInput for a bad size or token."""
    size = check_page_size(page_size)
    after = read_token(page_token)
    async with connection(pool) as conn:
        cursor = await conn.execute(
            _ACTIVE + b"where c.tenant = %s and c.name > %s order by c.name limit %s",
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


async def set_style(pool: Pool, tenant: str, name: str, style: AnswerStyle) -> Collection:
    """Set how a collection's answers are written, and return it; servers follow within seconds. Raises NotFound."""
    async with connection(pool) as conn:
        await conn.execute(
            "update collection set settings = (settings - 'answer_instructions' - 'answer_language') || %s"
            " where tenant = %s and name = %s",
            [Jsonb(_style_settings(style)), tenant, name],
        )
    return await get_collection(pool, tenant, name)


def _style_settings(style: AnswerStyle) -> dict[str, str]:
    """What is kept of a style: what is said."""
    said = {"answer_instructions": style.instructions, "answer_language": style.language}
    return {key: value for key, value in said.items() if value}


async def delete_collection(pool: Pool, tenant: str, name: str) -> None:
    """Delete a collection with everything in it.

    Raises NotFound; Overloaded while an ingest of it runs; DatabaseUnavailable where searches leave no gap for it.
    """
    collection = await get_collection(pool, tenant, name)

    async def delete(conn: Connection) -> Sequence[int]:
        cursor = await conn.execute(
            "select generation_id from generation where collection_id = %s", [collection.collection_id]
        )
        generations = [row[0] for row in await cursor.fetchall()]
        await conn.execute("delete from collection where collection_id = %s", [collection.collection_id])
        return generations

    async with collection_lock(pool, collection.collection_id, wait_seconds=0):
        async with connection(pool) as conn:  # a change of embedder that is under way leaves go of its partitions
            await conn.execute(
                "update reembedding set cancelled = true where collection_id = %s", [collection.collection_id]
            )
        await drop_generations(pool, name, delete)


async def drop_generations(pool: Pool, name: str, chosen: Callable[[Connection], Awaitable[Sequence[int]]]) -> None:
    """Drop the partitions of the generations that `chosen` takes out of the tables, in one transaction with it.

    `name` is the collection's, for messages. Raises DatabaseUnavailable where searches leave no gap for it.
    """
    for _ in range(_DROP_ATTEMPTS):
        try:
            await _drop(pool, chosen)
        except psycopg.errors.LockNotAvailable:
            await asyncio.sleep(0.1)
        else:
            return
    raise DatabaseUnavailable(
        f"the collection {name!r} is too busy to drop anything of it; try again", retry_after_seconds=10.0
    )


async def _drop(pool: Pool, chosen: Callable[[Connection], Awaitable[Sequence[int]]]) -> None:
    async with pool.connection() as conn, conn.transaction():
        await conn.execute("select set_config('statement_timeout', '0', true)")
        parts = [partition(table, generation) for generation in await chosen(conn) for table in PARTITIONED]
        if not parts:
            return
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
