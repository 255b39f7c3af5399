"""The vector index of a generation: none while an exact search is quick, HNSW once there are some thousand chunks.

A small partition is searched exactly, which is as quick and misses nothing. The index is built after a load, at once,
which takes a fraction of the time that inserting row by row takes. Figures: pgvector's README.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from standard.corpus.collections import partition
from standard.database.pool import transaction

if TYPE_CHECKING:
    from standard.database.pool import Connection, Pool

THRESHOLD = 5000
"""Chunks of a generation from which on it has an index."""
_ANALYZED_FROM = 500
_MEMORY_BYTES_A_VALUE = 2
_MEMORY_BYTES_A_ROW = 600  # links of about 2 * m neighbours, and what a graph node needs besides


async def index_if_large(pool: Pool, generation: int, *, changed: int, threshold: int = THRESHOLD) -> bool:
    """Build the index if the generation has outgrown exact search; renew statistics after a large change.

    `changed` counts the chunks written before. Returns whether the generation has an index now. Raises
    DatabaseUnavailable; no statement timeout bounds the build.
    """
    async with transaction(pool, statement_timeout=0) as conn:
        cursor = await conn.execute(
            "select chunk_count, dimensions, to_regclass(%s) is not null from generation where generation_id = %s",
            [index_name(generation), generation],
        )
        row = await cursor.fetchone()
        if row is None:
            return False
        chunks, dimensions, has_index = row
    if changed >= _ANALYZED_FROM or (changed and changed * 5 >= chunks):
        async with transaction(pool, statement_timeout=0) as conn:
            for table in ("chunk", "sentence", "posting"):
                await conn.execute(sql.SQL("analyze {}").format(partition(table, generation)))
            await conn.execute("analyze document")
    if has_index or chunks < threshold:
        return bool(has_index)
    try:
        await _build(pool, generation, chunks, dimensions, parallel=True)
    except (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory):
        # workers share the graph through /dev/shm, of which a container has 64 MB; one process alone needs none
        await _build(pool, generation, chunks, dimensions, parallel=False)
    return True


def index_name(generation: int) -> str:
    """Return the name of a generation's vector index."""
    return f"chunk_{generation}_embedding_idx"


async def _build(pool: Pool, generation: int, chunks: int, dimensions: int, *, parallel: bool) -> None:
    needed = chunks * (dimensions * _MEMORY_BYTES_A_VALUE + _MEMORY_BYTES_A_ROW) // 2**20
    async with pool.connection() as conn, conn.transaction():
        await _set(conn, "statement_timeout", "0")
        await _set(conn, "maintenance_work_mem", f"{min(max(needed * 3 // 2, 64), 2048)}MB")
        await _set(conn, "max_parallel_maintenance_workers", "2" if parallel else "0")
        await conn.execute(
            sql.SQL("create index if not exists {} on {} using hnsw ((embedding::halfvec({})) halfvec_ip_ops)").format(
                sql.Identifier(index_name(generation)), partition("chunk", generation), sql.Literal(dimensions)
            )
        )


async def _set(conn: Connection, name: str, value: str) -> None:
    await conn.execute("select set_config(%s, %s, true)", [name, value])
