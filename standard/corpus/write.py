"""The statements that put documents, chunks, sentences and postings into the tables, and take them out.

All run inside the caller's transaction: a document is there with all it consists of, or not at all. Rows are locked in
the order of document ids, then the generation's counters, so that writers wait for each other but never in a circle.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from standard.corpus.collections import partition
from standard.corpus.document import canonical_json
from standard.corpus.rescan import scan_record
from standard.database.pool import the_row
from standard.domain.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from standard.corpus.chunking import Chunk
    from standard.corpus.document import SourceDocument
    from standard.corpus.scan import ScanVerdict
    from standard.database.pool import Connection


SWITCHING = 0x7073
"""First half of the advisory lock that writers share and that a switch to another generation takes alone."""

# of incoming_chunk below; the vector goes as the bytes of its binary form
_CHUNK_TYPES = "int8 int8 int4 int4 int4 int4 int4 text text text text int4 bytea text text".split()  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk with all that is stored of it. `vector` is (d,), `sentence_vectors` (len(chunk.sentences), d)."""

    document_key: int
    chunk: Chunk
    verdict: ScanVerdict
    vector: NDArray[np.float32]
    sentence_vectors: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Counts:
    """What was added to or taken from a generation: chunks, and the sum of their lexical lengths."""

    chunks: int = 0
    lexical: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.chunks + other.chunks, self.lexical + other.lexical)

    def __neg__(self) -> Counts:
        return Counts(-self.chunks, -self.lexical)


async def put_documents(
    conn: Connection, collection_id: int, documents: Sequence[tuple[SourceDocument, str]]
) -> dict[str, int]:
    """Insert documents, given with their content hashes, or replace their fields; return their keys by id.

    Chunks of a document that was there stay until `remove_chunks`.
    """
    ordered = sorted(documents, key=lambda pair: pair[0].document_id)
    cursor = await conn.execute(
        """
        insert into document (collection_id, document_id, title, uri, text, metadata, access_groups, content_hash)
        select %s, id, title, uri, body, metadata::jsonb, array(select jsonb_array_elements_text(groups::jsonb)), hash
        from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
            with ordinality as given (id, title, uri, body, metadata, groups, hash, place)
        order by place
        on conflict (collection_id, document_id) do update set
            title = excluded.title, uri = excluded.uri, text = excluded.text, metadata = excluded.metadata,
            access_groups = excluded.access_groups, content_hash = excluded.content_hash, updated_at = now()
        returning document_id, document_key
        """,
        [
            collection_id,
            [document.document_id for document, _ in ordered],
            [document.title for document, _ in ordered],
            [document.uri for document, _ in ordered],
            [document.text for document, _ in ordered],
            [canonical_json(document.metadata) for document, _ in ordered],
            [json.dumps(sorted(set(document.groups))) for document, _ in ordered],
            [content_hash for _, content_hash in ordered],
        ],
    )
    return {row[0]: row[1] for row in await cursor.fetchall()}


async def hold_active(conn: Connection, collection_id: int) -> int:
    """Tell which generation answers; no other one takes its place before the transaction ends.

    Call before the first row is locked. Raises NotFound where the collection is gone.
    """
    await conn.execute("select pg_advisory_xact_lock_shared(%s, %s)", [SWITCHING, collection_id % 2**31])
    cursor = await conn.execute(
        "select active_generation from collection where collection_id = %s and active_generation is not null",
        [collection_id],
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound("the collection was deleted meanwhile")
    return int(row[0])


async def generations_of(conn: Connection, collection_id: int) -> list[int]:
    """The generations of a collection, in the order in which their counters are locked; none is dropped meanwhile.

    Ask once the rows of the documents are locked: a generation that is begun later sees them as they will be, one that
    was begun before may hold chunks of what they were.
    """
    cursor = await conn.execute(
        "select generation_id from generation where collection_id = %s order by generation_id for key share",
        [collection_id],
    )
    return [row[0] for row in await cursor.fetchall()]


async def put_chunks(conn: Connection, generation: int, text_config: str, rows: Sequence[ChunkRow]) -> Counts:
    """Copy chunks and their sentences in, and make their lexemes and postings on the server."""
    cursor = await conn.execute("select nextval('chunk_key_seq') from generate_series(1, %s)", [len(rows)])
    keys = [row[0] for row in await cursor.fetchall()]
    await conn.execute(
        """
        create temporary table if not exists incoming_chunk (
            chunk_key bigint, document_key bigint, position int, start_offset int, end_offset int, section_start int,
            section_end int, section_heading text, context text, text text, content_hash text, token_count int,
            embedding halfvec, verdict text, scan text
        ) on commit drop
        """
    )
    async with cursor.copy(b"copy incoming_chunk from stdin (format binary)") as copy:
        copy.set_types(_CHUNK_TYPES)
        for key, row, vector in zip(keys, rows, _half(np.stack([row.vector for row in rows])), strict=True):
            await copy.write_row(_chunk_values(key, row, vector))
    sentences = sql.SQL("copy {} from stdin (format binary)").format(partition("sentence", generation))
    async with cursor.copy(sentences) as copy:
        copy.set_types(["int8", "int8", "int4", "int4", "int4", "bytea"])
        for key, row in zip(keys, rows, strict=True):
            vectors = _half(row.sentence_vectors) if row.chunk.sentences else []
            for position, ((start, end), vector) in enumerate(zip(row.chunk.sentences, vectors, strict=True)):
                await copy.write_row((generation, key, position, start, end, vector))
    await conn.execute(
        sql.SQL(
            """
            with added as (
                insert into {chunk} (generation_id, chunk_key, document_key, position, start_offset, end_offset,
                    section_start, section_end, section_heading, text, content_hash, token_count, lexical_length,
                    lexemes, embedding, verdict, scan)
                select {generation}, chunk_key, document_key, position, start_offset, end_offset, section_start,
                    section_end, section_heading, text, content_hash, token_count,
                    (select coalesce(sum(cardinality(positions)), 0) from unnest(lexemes)), lexemes, embedding, verdict,
                    scan::jsonb
                from (select *, to_tsvector(%s::regconfig, context || text) as lexemes from incoming_chunk offset 0)
                given returning chunk_key, lexemes, lexical_length
            )
            insert into {posting} (generation_id, term, chunk_key, frequency, length)
            select {generation}, lexeme, chunk_key, cardinality(positions), lexical_length
            from added cross join unnest(lexemes) as entry
            order by lexeme, chunk_key
            """
        ).format(
            chunk=partition("chunk", generation),
            posting=partition("posting", generation),
            generation=sql.Literal(generation),
        ),
        [text_config],
    )
    cursor = await conn.execute(
        sql.SQL("select count(*), coalesce(sum(lexical_length), 0) from {} where chunk_key = any(%s)").format(
            partition("chunk", generation)
        ),
        [keys],
    )
    counted = await the_row(cursor)
    await conn.execute("truncate incoming_chunk")
    return Counts(counted[0], int(counted[1]))


def _chunk_values(key: int, row: ChunkRow, vector: bytes) -> tuple[object, ...]:
    chunk = row.chunk
    return (
        key,
        row.document_key,
        chunk.position,
        chunk.start,
        chunk.end,
        chunk.section_start,
        chunk.section_end,
        chunk.section_heading,
        chunk.context,
        chunk.text,
        hashlib.sha256(chunk.text.encode()).hexdigest(),
        chunk.token_count,
        vector,
        row.verdict.verdict,
        json.dumps(scan_record(row.verdict)),
    )


def _half(vectors: NDArray[np.float32]) -> list[bytes]:
    """Return each row of (n, d) as pgvector's binary halfvec: length and zero as int16, then big-endian float16."""
    head = struct.pack(">HH", vectors.shape[1], 0)
    return [head + row.tobytes() for row in vectors.astype(">f2")]


async def remove_chunks(conn: Connection, generation: int, document_keys: Sequence[int]) -> Counts:
    """Delete the chunks of documents, with their sentences and postings, from a generation."""
    cursor = await conn.execute(
        sql.SQL(
            """
            with gone as (
                delete from {chunk} where document_key = any(%s) returning chunk_key, lexemes, lexical_length
            ), sentences as (
                delete from {sentence} s using gone
                where s.generation_id = {generation} and s.chunk_key = gone.chunk_key
            ), postings as (
                delete from {posting} p
                using (select chunk_key, unnest(tsvector_to_array(lexemes)) as term from gone) entry
                where p.generation_id = {generation} and p.term = entry.term and p.chunk_key = entry.chunk_key
            )
            select count(*), coalesce(sum(lexical_length), 0) from gone
            """
        ).format(
            chunk=partition("chunk", generation),
            sentence=partition("sentence", generation),
            posting=partition("posting", generation),
            generation=sql.Literal(generation),
        ),
        [list(document_keys)],
    )
    row = await the_row(cursor)
    return Counts(row[0], int(row[1]))


async def add_counts(conn: Connection, generation: int, change: Counts) -> None:
    """Change a generation's counters. The last statement of a transaction: it makes other writers wait."""
    if change != Counts():
        await conn.execute(
            "update generation set chunk_count = chunk_count + %s, lexical_total = lexical_total + %s"
            " where generation_id = %s",
            [change.chunks, change.lexical, generation],
        )


async def remove_documents(conn: Connection, collection_id: int, document_keys: Sequence[int]) -> None:
    """Delete documents and all that was made of them, in every generation. Their rows are locked by the caller."""
    if not document_keys:
        return
    generations = await generations_of(conn, collection_id)
    changes = [(each, await remove_chunks(conn, each, document_keys)) for each in generations]
    await conn.execute("delete from document where document_key = any(%s)", [list(document_keys)])
    for generation, removed in changes:
        await add_counts(conn, generation, -removed)
