"""The vector index of a generation: none while an exact search is quick, HNSW once there are some thousand chunks.

A small partition is searched exactly, which is as quick and misses nothing. The index is built after a load, at once,
which takes a fraction of the time that inserting row by row takes. Figures: pgvector's README.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from standard.corpus.collections import PARTITIONED, partition
from standard.database.pool import connect_beside, connection, transaction, translated_errors

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
    found = await _look(pool, generation)
    if found is None:
        return False
    chunks, dimensions, has_index = found
    if changed >= _ANALYZED_FROM or (changed and changed * 5 >= chunks):
        await analyze(pool, generation)
    if has_index or chunks < threshold:
        return bool(has_index)
    try:
        await _build(pool, generation, chunks, dimensions, parallel=True)
    except (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory):
        # workers share the graph through /dev/shm, of which a container has 64 MB; one process alone needs none
        await _build(pool, generation, chunks, dimensions, parallel=False)
    return True


async def index_beside(pool: Pool, generation: int, *, threshold: int = THRESHOLD) -> bool:
    """As `index_if_large`, for a generation that is filled while others answer: whoever writes goes on meanwhile.

    An index that an interrupted build left behind is dropped first. Returns whether the generation has one now.
    """
    found = await _look(pool, generation)
    if found is None:
        return False
    chunks, dimensions, has_index = found
    if has_index or chunks < threshold:
        return has_index
    name = sql.Identifier(index_name(generation))
    async with connection(pool) as borrowed:
        pooled = borrowed.behind_pooler  # whose sessions are not ours to set
    with translated_errors():
        # a connection of its own: a build that runs beside others' writing can be in no transaction, and takes long
        conn = await connect_beside(pool, "pointsman-index")
        async with conn:
            if not pooled:
                for key, value in (
                    ("statement_timeout", "0"),
                    ("maintenance_work_mem", _memory(chunks, dimensions)),
                    # one process alone needs none of /dev/shm, of which a container has 64 MB; nobody waits for this
                    ("max_parallel_maintenance_workers", "0"),
                ):
                    await conn.execute("select set_config(%s, %s, false)", [key, value])
            await conn.execute(sql.SQL("drop index concurrently if exists {}").format(name))
            await conn.execute(_statement(generation, dimensions, beside=True))
    return True


async def analyze(pool: Pool, generation: int) -> None:
    """Renew the planner's statistics of a generation and of the documents."""
    async with transaction(pool, statement_timeout=0) as conn:
        for table in PARTITIONED:
            await conn.execute(sql.SQL("analyze {}").format(partition(table, generation)))
        await conn.execute("analyze document")


async def _look(pool: Pool, generation: int) -> tuple[int, int, bool] | None:
    """Chunks and dimensions of a generation, and whether it has an index that works; None where it is gone."""
    async with transaction(pool, statement_timeout=0) as conn:
        cursor = await conn.execute(
            "select chunk_count, dimensions, exists ("
            "  select from pg_index where indexrelid = to_regclass(%s) and indisvalid"
            ") from generation where generation_id = %s",
            [index_name(generation), generation],
        )
        row = await cursor.fetchone()
    return None if row is None else (row[0], row[1], bool(row[2]))


def index_name(generation: int) -> str:
    """Return the name of a generation's vector index."""
    return f"chunk_{generation}_embedding_idx"


async def _build(pool: Pool, generation: int, chunks: int, dimensions: int, *, parallel: bool) -> None:
    async with pool.connection() as conn, conn.transaction():
        await _set(conn, "statement_timeout", "0")
        await _set(conn, "maintenance_work_mem", _memory(chunks, dimensions))
        await _set(conn, "max_parallel_maintenance_workers", "2" if parallel else "0")
        await conn.execute(_statement(generation, dimensions))


def _memory(chunks: int, dimensions: int) -> str:
    needed = chunks * (dimensions * _MEMORY_BYTES_A_VALUE + _MEMORY_BYTES_A_ROW) // 2**20
    return f"{min(max(needed * 3 // 2, 64), 2048)}MB"


def _statement(generation: int, dimensions: int, *, beside: bool = False) -> sql.Composed:
    return sql.SQL(
        "create index {} if not exists {} on {} using hnsw ((embedding::halfvec({})) halfvec_ip_ops)"
    ).format(
        sql.SQL("concurrently" if beside else ""),
        sql.Identifier(index_name(generation)),
        partition("chunk", generation),
        sql.Literal(dimensions),
    )


async def _set(conn: Connection, name: str, value: str) -> None:
    await conn.execute("select set_config(%s, %s, true)", [name, value])
