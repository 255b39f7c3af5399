"""From one generation to the other, and what comes after: back, the end of the old one, or giving the change up.

Prevents the moment in which a document is in neither: while the two change places nobody writes to the collection
(every writer shares a lock that the switch takes alone), what is still missing is embedded within that moment, and the
change happens in the transaction that has counted that nothing is. Searches take no lock and never wait.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import psycopg

from standard.corpus.collections import Collection, collection_at, drop_generations
from standard.corpus.index import index_beside
from standard.corpus.reembed.catchup import CatchUp, catch_up, count_lacking, lacking
from standard.corpus.reembed.state import get_reembedding, note_change
from standard.corpus.rescan import rescan
from standard.corpus.scan import Scan
from standard.corpus.write import SWITCHING
from standard.database.pool import connect_beside, connection, translated_errors
from standard.domain.errors import FailedPrecondition, NotFound, Overloaded, PointsmanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from standard.corpus.embedders import Embedders
    from standard.corpus.reembed.state import Reembedding, Side
    from standard.database.pool import Connection, Pool

ScanOf: TypeAlias = "Callable[[Collection], tuple[Scan, str]]"
"""The scan of a collection's passages and the version of its verdicts."""

FEW = 32
"""Documents that may be missing when writers are held up."""
_ROUNDS = 20
_LOCK_SECONDS = 30
_PAUSE_SECONDS = 0.05
_LAST_SECONDS = 20.0
"""Longest time that writers are held up, for embedding the last few."""


async def task_for(pool: Pool, side: Side, embedders: Embedders, scan_of: ScanOf) -> CatchUp:
    """What brings a generation up to date. Raises NotFound where it is gone, else as Embedders.of."""
    collection = await collection_at(pool, side.generation_id)
    embedder = await embedders.of(side.embedder, side.spec)
    return CatchUp(collection, embedder, *scan_of(collection))


async def judge_again(pool: Pool, task: CatchUp) -> None:
    """Judge passages whose verdicts are of other rules, or another policy, than those in force; as ingest does."""
    if task.scan_version:
        await rescan(pool, task.collection, task.scan, task.scan_version)


async def switch(pool: Pool, tenant: str, name: str, embedders: Embedders, scan_of: ScanOf, *, by: str) -> Reembedding:
    """Let the new generation answer, in one transaction, and return the change.

    Raises NotFound; FailedPrecondition unless it is ready; EmbedderUnavailable where questions could not be embedded;
    Overloaded where documents come in faster than they are embedded, or a writer does not end.
    """
    change = await get_reembedding(pool, tenant, name)
    if change.state != "ready":
        left = "" if change.remaining is None else f", {change.remaining} documents are to be embedded yet"
        raise FailedPrecondition(
            f"the collection {name!r} is switched already"
            if change.state == "switched"
            else f"the new vectors of {name!r} are not complete ({change.state}{left}); wait for ready"
        )
    return await _change_places(pool, change, embedders, scan_of, "switch", by)


async def roll_back(
    pool: Pool, tenant: str, name: str, embedders: Embedders, scan_of: ScanOf, *, by: str
) -> Reembedding:
    """Let the former generation answer again; as `switch`. The new one is kept, so that one can switch again."""
    change = await get_reembedding(pool, tenant, name)
    if change.state != "switched":
        raise FailedPrecondition(f"the collection {name!r} is not switched; there is nothing to roll back")
    return await _change_places(pool, change, embedders, scan_of, "roll_back", by)


async def _change_places(
    pool: Pool,
    change: Reembedding,
    embedders: Embedders,
    scan_of: ScanOf,
    action: Literal["switch", "roll_back"],
    by: str,
) -> Reembedding:
    task = await task_for(pool, change.behind, embedders, scan_of)
    await task.embedder.embed_queries(["ready?"])  # a generation that no question can be embedded for must not answer
    for _ in range(_ROUNDS):
        if await count_lacking(pool, change.collection_id, change.behind.generation_id) <= FEW:
            break
        await catch_up(pool, task)
    else:
        raise Overloaded("documents come in faster than they are embedded; try again", retry_after_seconds=30.0)
    await judge_again(pool, task)
    await index_beside(pool, change.behind.generation_id)
    async with _writers_held_up(pool, change.collection_id) as conn:
        # what was set of the collection meanwhile counts
        task = replace(task, collection=await collection_at(pool, change.behind.generation_id))
        scan, version = scan_of(task.collection)
        judged = version == task.scan_version
        task = replace(task, scan=scan, scan_version=version)
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                while await count_lacking(pool, change.collection_id, change.behind.generation_id):
                    if not await catch_up(pool, task):
                        await asyncio.sleep(_PAUSE_SECONDS)  # somebody who deletes has it locked
                if not judged:
                    await judge_again(pool, task)
        except TimeoutError:
            raise Overloaded("the last documents took too long to embed; try again", retry_after_seconds=30.0) from None
        await _flip(conn, change, task.collection.scan_policy, action, by)
    return await get_reembedding(pool, change.tenant, change.name)


@asynccontextmanager
async def _writers_held_up(pool: Pool, collection_id: int) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """Yield a connection in a transaction during which nobody writes documents to the collection.

    A connection of its own, in the simple protocol, as in standard.corpus.lock. It waits in the queue of the lock, so
    that writers who come later do not overtake it. Raises Overloaded where those before do not end.
    """
    with translated_errors():
        conn = await connect_beside(pool, "pointsman-switch", simple=True)
        async with conn, conn.transaction():
            try:
                for key, value in (
                    ("lock_timeout", f"{_LOCK_SECONDS}s"),
                    ("statement_timeout", "0"),
                    ("idle_in_transaction_session_timeout", "0"),
                ):
                    await conn.execute("select set_config(%s, %s, true)", [key, value])
                await conn.execute("select pg_advisory_xact_lock(%s, %s)", [SWITCHING, collection_id % 2**31])
            except psycopg.errors.LockNotAvailable:
                raise Overloaded(
                    "an ingest of the collection holds its documents; try again", retry_after_seconds=10.0
                ) from None
            yield conn


async def _flip(
    conn: AsyncConnection[TupleRow],
    change: Reembedding,
    scan_policy: str,
    action: Literal["switch", "roll_back"],
    by: str,
) -> None:
    """Change places, if all is as it was thought to be."""
    cursor = await conn.execute(
        "select active_generation, coalesce(settings ->> 'scan_policy', '') from collection"
        " where collection_id = %s for no key update",
        [change.collection_id],
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(f"the collection {change.name!r} was deleted meanwhile")
    to, from_ = change.behind, change.answering
    if row[0] != from_.generation_id or row[1] != scan_policy:
        raise Overloaded("the collection was changed meanwhile; try again", retry_after_seconds=1.0)
    if await lacking(conn, change.collection_id, to.generation_id):
        raise Overloaded("a document came in meanwhile; try again", retry_after_seconds=1.0)
    cursor = await conn.execute(
        "update reembedding set state = %s, switched_at = case when %s then now() end, remaining = 0, problem = '',"
        " attempts = 0, attempt_at = now(), updated_at = now() where collection_id = %s and state = %s returning 1",
        ["switched" if action == "switch" else "ready", action == "switch", change.collection_id, change.state],
    )
    if await cursor.fetchone() is None:
        raise Overloaded(f"the change of {change.name!r} went on meanwhile; look at it again")
    await conn.execute(
        "update generation set state = case when generation_id = %s then 'active' else 'retired' end"
        " where generation_id in (%s, %s)",
        [to.generation_id, to.generation_id, from_.generation_id],
    )
    await conn.execute(
        "update collection set active_generation = %s where collection_id = %s",
        [to.generation_id, change.collection_id],
    )
    await note_change(conn, change.tenant, change.name, action, from_.embedder.id, to.embedder.id, by)


async def finish(pool: Pool, tenant: str, name: str, *, by: str) -> Reembedding:
    """Drop the former generation: there is no way back from here. Returns the change as it was.

    Raises NotFound, FailedPrecondition unless it is switched, DatabaseUnavailable where searches leave no gap.
    """
    change = await get_reembedding(pool, tenant, name)
    if change.state != "switched":
        raise FailedPrecondition(f"the collection {name!r} is not switched; cancel the change to give it up")
    await _drop(pool, change, "finish", by)
    return change


async def cancel(pool: Pool, tenant: str, name: str, *, by: str) -> Reembedding:
    """Give a change up and drop the new generation. Returns the change as it was.

    Raises NotFound, FailedPrecondition where it is switched, DatabaseUnavailable where searches leave no gap.
    """
    change = await get_reembedding(pool, tenant, name)
    if change.state == "switched":
        raise FailedPrecondition(f"the collection {name!r} is switched: roll it back first, or finish the change")
    await _drop(pool, change, "cancel", by)
    return change


async def _drop(pool: Pool, change: Reembedding, action: Literal["finish", "cancel"], by: str) -> None:
    # whoever is at it stops, and leaves go of the partitions
    await _stop(pool, change, stopped=True)

    async def chosen(conn: Connection) -> Sequence[int]:
        cursor = await conn.execute(
            "delete from reembedding where collection_id = %s and state = %s and generation_id = %s returning 1",
            [change.collection_id, change.state, change.new.generation_id],
        )
        if await cursor.fetchone() is None:
            raise Overloaded(f"the change of {change.name!r} went on meanwhile; look at it again")
        await conn.execute("delete from generation where generation_id = %s", [change.behind.generation_id])
        ids = change.former.embedder.id, change.new.embedder.id
        await note_change(conn, change.tenant, change.name, action, *ids, by)
        return [change.behind.generation_id]

    try:
        with translated_errors():
            await drop_generations(pool, change.name, chosen)
    except PointsmanError:  # it is there yet, and has to go on
        await _stop(pool, change, stopped=False)
        raise


async def _stop(pool: Pool, change: Reembedding, *, stopped: bool) -> None:
    """Tell whoever works at this change, and at no later one, to stop or to go on."""
    async with connection(pool) as conn:
        await conn.execute(
            "update reembedding set cancelled = %s where collection_id = %s and generation_id = %s",
            [stopped, change.collection_id, change.new.generation_id],
        )
