"""Bring a generation up to date: whatever document it has no chunk of is cut, embedded and written.

Prevents a document that is missing after the switch. Documents are embedded outside of any transaction; the one that
writes them locks their rows and looks again, so that one that was deleted or replaced meanwhile, or is at this moment,
is left to the next pass, nobody waits for another in a circle, and two who work at once write nothing twice. Nothing
else is remembered: whoever is interrupted, or takes over, asks again what is missing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from standard.corpus.chunking import read_chunking
from standard.corpus.collections import partition
from standard.corpus.document import SourceDocument
from standard.corpus.ingest import cut_document, passage_of
from standard.corpus.write import ChunkRow, Counts, add_counts, put_chunks
from standard.database.pool import connection, limit_statements, the_row, transaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from standard.corpus.chunking import Chunk, Chunking
    from standard.corpus.collections import Collection
    from standard.corpus.scan import Scan, ScanVerdict
    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder

_LOOKED_AT = 64  # documents named in one statement
_TEXT_AT_ONCE = 500_000  # code points of documents that are cut and written together, one at least
_EMBEDDED_AT_ONCE = 64  # chunks of one call
_SECONDS = 120.0  # bound of each statement


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What is brought up to date: a collection as one of its generations has it (collection_at), and with what."""

    collection: Collection
    embedder: Embedder
    scan: Scan
    scan_version: str


@dataclass(frozen=True, slots=True)
class _Made:
    key: int
    content_hash: str
    chunks: list[tuple[Chunk, ScanVerdict]]
    vectors: list[np.ndarray]
    sentences: list[np.ndarray]


async def lacking(conn: AsyncConnection[TupleRow], collection_id: int, generation: int) -> int:
    """How many documents of the collection a generation has no chunk of."""
    cursor = await conn.execute(
        sql.SQL(
            "select count(*) from document d where d.collection_id = {collection}"
            " and not exists (select from {chunk} c where c.document_key = d.document_key)"
        ).format(collection=sql.Literal(collection_id), chunk=partition("chunk", generation))
    )
    return int((await the_row(cursor))[0])


async def count_lacking(pool: Pool, collection_id: int, generation: int) -> int:
    """As `lacking`, on a connection of the pool."""
    async with connection(pool, statement_timeout=_SECONDS) as conn:
        return await lacking(conn, collection_id, generation)


async def catch_up(pool: Pool, task: CatchUp, told: Callable[[int, int], Awaitable[None]] | None = None) -> int:
    """Go once through the documents that the generation lacks; return how many chunks were written.

    `told` is given documents and chunks as they are written. Raises DatabaseUnavailable, EmbedderUnavailable,
    Overloaded; FailedPrecondition where the generation was dropped.
    """
    chunking = read_chunking(task.collection.chunker)
    after, written = "", 0
    while found := await _next(pool, task.collection, after):
        after = found[-1][1]
        made = [await _make(task, chunking, key, document, digest) for key, _, document, digest in found]
        chunks = await _write(pool, task.collection, made)
        written += chunks
        if told is not None:
            await told(len(made), chunks)
    return written


async def _next(pool: Pool, collection: Collection, after: str) -> list[tuple[int, str, SourceDocument, str]]:
    """Key, id, document and hash of the next that are missing, by id: as many as are cut and written together."""
    async with connection(pool, statement_timeout=_SECONDS) as conn:
        cursor = await conn.execute(
            # a scalar subquery stays a look into the index, a document at a time, and stops at the limit
            sql.SQL(
                """
                select document_key, document_id, length(text) from document d
                where collection_id = %s and document_id > %s
                  and (select 1 from {chunk} c where c.document_key = d.document_key limit 1) is null
                order by document_id limit %s
                """
            ).format(chunk=partition("chunk", collection.generation_id)),
            [collection.collection_id, after, _LOOKED_AT],
        )
        named = await cursor.fetchall()
        size = 0
        keys: list[int] = []
        for key, _, length in named:
            if keys and size + length > _TEXT_AT_ONCE:
                break
            keys.append(key)
            size += length
        cursor = await conn.execute(
            "select document_key, document_id, title, text, content_hash from document"
            " where document_key = any(%s) order by document_id",
            [keys],
        )
        rows = await cursor.fetchall()
    return [(key, name, SourceDocument(name, title, text), digest) for key, name, title, text, digest in rows]


async def _make(task: CatchUp, chunking: Chunking, key: int, document: SourceDocument, content_hash: str) -> _Made:
    """Cut and embed a document; in half precision, as it is stored."""
    chunks = await asyncio.to_thread(cut_document, document, task.embedder, chunking, task.scan)
    vectors, sentences = [], []
    for first in range(0, len(chunks), _EMBEDDED_AT_ONCE):
        part = chunks[first : first + _EMBEDDED_AT_ONCE]
        embedded = await task.embedder.embed_passages([passage_of(chunk) for chunk, _ in part])
        vectors += list(embedded.vectors.astype(np.float16))
        sentences += [each.astype(np.float16) for each in embedded.sentence_vectors]
    return _Made(key, content_hash, chunks, vectors, sentences)


async def _write(pool: Pool, collection: Collection, made: Sequence[_Made]) -> int:
    """Write what is still as it was embedded, and still missing."""
    keys = [each.key for each in made]
    chunk = partition("chunk", collection.generation_id)
    async with transaction(pool) as conn:
        await limit_statements(conn, _SECONDS)
        cursor = await conn.execute(
            "select document_key, content_hash from document where document_key = any(%s)"
            " order by document_id for no key update skip locked",
            [keys],
        )
        there: dict[int, str] = dict(await cursor.fetchall())
        cursor = await conn.execute(
            sql.SQL("select distinct document_key from {} where document_key = any(%s)").format(chunk), [keys]
        )
        done = {row[0] for row in await cursor.fetchall()}
        rows = [
            ChunkRow(each.key, cut, verdict, vector, sentences)
            for each in made
            if there.get(each.key) == each.content_hash and each.key not in done
            for (cut, verdict), vector, sentences in zip(each.chunks, each.vectors, each.sentences, strict=True)
        ]
        counts = Counts()
        if rows:
            counts = await put_chunks(conn, collection.generation_id, collection.text_config, rows)
        await add_counts(conn, collection.generation_id, counts)
    return counts.chunks
