"""One ingest of a collection at a time, and one worker at its change of embedder.

Prevents two runs that each prune what the other has just put in, and two workers that embed the same. The lock lives in
an open transaction on a connection of its own, so that no pooler in transaction mode can part us from it and no small
pool is used up; PostgreSQL frees it when the process dies. Statements there speak the simple protocol: in the extended
one the last statement's portal would keep its snapshot for the whole time, and vacuum would clean nothing behind it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from standard.database.pool import connect_beside, translated_errors
from standard.domain.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from standard.database.pool import Pool

INGEST, REEMBED = 0x706D, 0x7072
"""What is held: the first half of the lock's key; the second is the collection's id."""
_WORK = {INGEST: "ingest", REEMBED: "change of embedder"}
_POLL_SECONDS = 0.2


@asynccontextmanager
async def collection_lock(
    pool: Pool, collection_id: int, *, wait_seconds: float, kind: int = INGEST
) -> AsyncIterator[None]:
    """Hold the collection's ingest lock, or that of another kind, for the block.

    Raises Overloaded where another process still holds it after `wait_seconds`, DatabaseUnavailable if the connection
    that holds it was lost by the end of the block.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_seconds
    with translated_errors():
        conn = await connect_beside(pool, "pointsman-ingest-lock", simple=True)
        async with conn:
            while True:
                async with conn.transaction():
                    cursor = await conn.execute(
                        "select pg_try_advisory_xact_lock(%s, %s)", [kind, collection_id % 2**31]
                    )
                    row = await cursor.fetchone()
                    if row is not None and row[0]:
                        await conn.execute("select set_config('idle_in_transaction_session_timeout', '0', true)")
                        yield
                        return
                if loop.time() >= deadline:
                    raise Overloaded(
                        f"another {_WORK[kind]} of this collection is running; try again when it is done",
                        retry_after_seconds=30.0,
                    )
                await asyncio.sleep(_POLL_SECONDS)
