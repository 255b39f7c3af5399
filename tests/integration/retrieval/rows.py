"""Chunks straight into the tables, so that a test can choose vectors, verdicts and groups as it likes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from standard.database.pool import Pool, transaction

EMBEDDER = "test-embedder"
CHECKSUM = "c0ffee"


@dataclass(frozen=True)
class Row:
    """A document with its chunks; one embedding a chunk."""

    document_id: str
    chunks: tuple[str, ...]
    vectors: NDArray[np.float32]
    title: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()


async def add_collection(
    pool: Pool,
    rows: Sequence[Row],
    *,
    name: str = "default",
    tenant: str = "default",
    index: str | None = None,
    text_config: str = "english",
) -> int:
    """Make a collection with one active generation, and an HNSW index of that operator class; return the generation."""
    dimensions = rows[0].vectors.shape[1]
    async with transaction(pool, statement_timeout=120) as conn:
        cursor = await conn.execute(
            "insert into collection (tenant, name, text_config) values (%s, %s, %s) returning collection_id",
            [tenant, name, text_config],
        )
        row = await cursor.fetchone()
        assert row is not None
        collection = row[0]
        cursor = await conn.execute(
            "insert into generation (collection_id, embedder_id, embedder_checksum, dimensions, chunker, state)"
            " values (%s, %s, %s, %s, 'test', 'active') returning generation_id",
            [collection, EMBEDDER, CHECKSUM, dimensions],
        )
        row = await cursor.fetchone()
        assert row is not None
        generation: int = row[0]
        for table in ("chunk", "sentence", "posting"):
            await conn.execute(
                f"create table {table}_{generation} partition of {table} for values in ({generation})".encode()
            )
        cursor = await conn.execute(
            "select nextval(pg_get_serial_sequence('document', 'document_key')) from generate_series(1, %s)",
            [len(rows)],
        )
        keys = [key for (key,) in await cursor.fetchall()]
        async with conn.cursor().copy(
            "copy document"
            " (document_key, collection_id, document_id, title, text, metadata, access_groups, content_hash)"
            " from stdin"
        ) as copy:
            for key, item in zip(keys, rows, strict=True):
                await copy.write_row(
                    (
                        key,
                        collection,
                        item.document_id,
                        item.title,
                        " ".join(item.chunks),
                        json.dumps(dict(item.metadata)),
                        list(item.groups),
                        "hash",
                    )
                )
        await conn.execute(
            "create temp table incoming (chunk_key bigint, document_key bigint, position int, title text, text text,"
            " starts int, embedding halfvec, verdict text) on commit drop"
        )
        chunk_key = generation * 1_000_000
        async with conn.cursor().copy("copy incoming from stdin (format binary)") as copy:
            copy.set_types(["int8", "int8", "int4", "text", "text", "int4", "halfvec", "text"])
            for key, item in zip(keys, rows, strict=True):
                starts = 0
                for position, (text, vector) in enumerate(zip(item.chunks, item.vectors, strict=True)):
                    verdict = item.verdicts[position] if item.verdicts else "pass"
                    embedding = HalfVector(vector)
                    await copy.write_row((chunk_key, key, position, item.title, text, starts, embedding, verdict))
                    chunk_key += 1
                    starts += len(text) + 1
        await conn.execute(
            f"""
            insert into chunk
            select {generation}, chunk_key, document_key, position, starts, starts + length(text),
                0, (select length(d.text) from document d where d.document_key = incoming.document_key), '',
                text, md5(text), 1,
                (select coalesce(sum(cardinality(positions)), 0) from unnest(lexemes)), lexemes, embedding, verdict
            from (select *, to_tsvector('{text_config}', title || ' ' || text) as lexemes from incoming) incoming
            """.encode()
        )
        await conn.execute(
            f"""
            insert into posting
            select {generation}, lexeme, chunk_key, cardinality(positions), lexical_length
            from chunk_{generation}, unnest(lexemes)
            """.encode()
        )
        await conn.execute(
            f"""
            update generation set chunk_count = (select count(*) from chunk_{generation}),
                lexical_total = (select sum(lexical_length) from chunk_{generation})
            where generation_id = {generation}
            """.encode()
        )
        await conn.execute(
            "update collection set active_generation = %s where collection_id = %s", [generation, collection]
        )
        if index is not None:
            await conn.execute(
                f"create index on chunk_{generation} using hnsw ((embedding::halfvec({dimensions})) {index})".encode()
            )
    async with pool.connection() as conn:
        await conn.execute(f"vacuum analyze document, chunk_{generation}, posting_{generation}, generation".encode())
    return generation


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """L2-normalise the rows."""
    normalised: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return normalised
