"""The work behind every change of embedder, beside whatever else a process does.

Each process looks for changes that are due; a lock lets one work at a change at a time, and frees it when that process
dies. What fails is tried again, later each time; after some failures in a row the change is called paused, so that
people see it, and is tried again now and then all the same.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from standard.corpus.collections import read_spec
from standard.corpus.index import analyze, index_beside
from standard.corpus.lock import REEMBED, collection_lock
from standard.corpus.reembed.catchup import catch_up, count_lacking
from standard.corpus.reembed.state import reembedding_of
from standard.corpus.reembed.switch import FEW, judge_again, task_for
from standard.database.pool import connection
from standard.domain.errors import Overloaded, PointsmanError

if TYPE_CHECKING:
    from standard.corpus.embedders import Embedders
    from standard.corpus.reembed.state import Reembedding
    from standard.corpus.reembed.switch import ScanOf
    from standard.database.pool import Pool

_log = structlog.get_logger("pointsman.reembed")

LOOK_SECONDS = 2.0
"""How often a process looks for changes that are due, and opens embedders that questions will need."""
KEPT_SECONDS = 300.0
"""A generation that is up to date is gone through again after so long, whether it seems to have changed or not."""
UNUSED_SECONDS = 120.0
"""An embedder that no generation needs any more is closed after so long: a run may be at it yet."""
PAUSED_AFTER = 5
"""Failures in a row after which a change is called paused."""
LONGEST_WAIT = 60
"""Seconds until the next attempt, at most."""
AT_ONCE = 2
"""Changes that one process works at."""
_NOTE_SECONDS = 1.0


class Reembedder:
    """Works at changes that are due. `follow` runs until it is cancelled; what it began ends with it."""

    def __init__(self, pool: Pool, embedders: Embedders, scan_of: ScanOf) -> None:
        self._pool = pool
        self._embedders = embedders
        self._scan_of = scan_of
        self._at_work: dict[int, asyncio.Task[None]] = {}
        self._seen: dict[int, tuple[object, float]] = {}
        self._unused: dict[object, float] = {}
        self._unopened: dict[object, str] = {}

    async def follow(self) -> None:
        """Look for work every few seconds until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._open_embedders()
                    await self._look(group)
                except PointsmanError as error:
                    _log.warning("changes of embedders could not be looked at; trying again", error=error.message)
                except Exception:  # noqa: BLE001 - work beside the answers, which must not end with it
                    _log.exception("changes of embedders could not be looked at; trying again")
                await asyncio.sleep(LOOK_SECONDS)

    async def _open_embedders(self) -> None:
        """Open what answering collections and those that may soon answer need; close what nobody does."""
        async with connection(self._pool) as conn:
            cursor = await conn.execute("select distinct embedder from generation where embedder is not null")
            specs = [spec for (kept,) in await cursor.fetchall() if (spec := read_spec(kept)) is not None]
        for spec in specs:
            try:
                await self._embedders.open(spec)
            except PointsmanError as error:
                if self._unopened.get(spec) != error.message:  # said once, not every look
                    _log.warning("a collection's embedder cannot be opened", model=spec.model, error=error.message)
                self._unopened[spec] = error.message
            else:
                self._unopened.pop(spec, None)
        now = time.monotonic()
        self._unused = {spec: self._unused.get(spec, now) for spec in self._embedders.opened() if spec not in specs}
        await self._embedders.keep(
            [spec for spec in self._embedders.opened() if now - self._unused.get(spec, now) < UNUSED_SECONDS]
        )

    async def _look(self, group: asyncio.TaskGroup) -> None:
        async with connection(self._pool) as conn:
            cursor = await conn.execute(
                """
                select r.collection_id, r.attempt_at <= now() and not r.cancelled, r.cancelled,
                    (r.state, r.remaining, r.generation_id,
                     g.generation_id, g.chunk_count, g.lexical_total, c.settings)::text
                from reembedding r join collection c using (collection_id)
                join generation g on g.generation_id = c.active_generation
                order by r.started_at
                """
            )
            rows = await cursor.fetchall()
        going_on = {row[0] for row in rows if not row[2]}
        self._seen = {each: seen for each, seen in self._seen.items() if each in going_on}
        for collection_id, task in list(self._at_work.items()):
            if task.done():
                del self._at_work[collection_id]
            elif collection_id not in going_on:
                task.cancel("the change was cancelled")
        for collection_id, due, _, token in rows:
            seen, at = self._seen.get(collection_id, (None, 0.0))
            idle = seen == token and time.monotonic() - at < KEPT_SECONDS
            if due and not idle and collection_id not in self._at_work and len(self._at_work) < AT_ONCE:
                self._at_work[collection_id] = group.create_task(self._work(collection_id, token))

    async def _work(self, collection_id: int, token: str) -> None:
        """Work at a change once; whatever goes wrong is noted with it."""
        try:
            async with collection_lock(self._pool, collection_id, wait_seconds=0, kind=REEMBED):
                try:
                    remaining = await self.bring_up_to_date(collection_id)
                except PointsmanError as error:
                    await self._failed(collection_id, error.message)
                except Exception as error:  # noqa: BLE001 - a bug there must stop neither the process nor be hidden
                    _log.exception("a change of embedder failed", collection_id=collection_id)
                    await self._failed(collection_id, f"internal error: {type(error).__name__}")
                else:
                    if not remaining:
                        self._seen[collection_id] = (token, time.monotonic())
        except Overloaded:
            pass  # another process is at it
        except PointsmanError as error:
            _log.warning("a change of embedder stopped; trying again", error=error.message)

    async def bring_up_to_date(self, collection_id: int) -> int:
        """Fill what the generation that does not answer lacks; a new one is indexed and becomes ready.

        Returns how many documents it lacks yet: those that came in meanwhile, which a switch fills in as well.
        """
        change = await reembedding_of(self._pool, collection_id)
        if change is None or change.cancelled:
            return 0
        generation = change.behind.generation_id
        remaining = await count_lacking(self._pool, collection_id, generation)
        await self._note(collection_id, remaining, None, went_on=False)
        task = await task_for(self._pool, change.behind, self._embedders, self._scan_of)
        building = change.state in ("building", "paused")
        while remaining:
            written = await catch_up(self._pool, task, _Told(self, collection_id, remaining))
            left = await count_lacking(self._pool, collection_id, generation)
            await self._note(collection_id, left, None)
            stuck = not written and left >= remaining  # it was changed meanwhile, or deleted; the next look takes it
            remaining = left
            if stuck or remaining <= FEW:  # where documents keep coming in, some are always missing
                break
        await judge_again(self._pool, task)
        if building:
            await analyze(self._pool, generation)
            await index_beside(self._pool, generation)
        remaining = await count_lacking(self._pool, collection_id, generation)
        await self._note(collection_id, remaining, None)
        if building and remaining <= FEW:
            await self._ready(change)
        return remaining

    async def _note(self, collection_id: int, remaining: int, rate: float | None, *, went_on: bool = True) -> None:
        """Note how much remains; where it `went_on`, what was wrong before is over."""
        async with connection(self._pool) as conn:
            await conn.execute(
                """
                update reembedding set remaining = %(remaining)s, rate = coalesce(%(rate)s, rate), updated_at = now(),
                    problem = case when %(went_on)s then '' else problem end,
                    attempts = case when %(went_on)s then 0 else attempts end,
                    state = case when %(went_on)s and state = 'paused' then 'building' else state end
                where collection_id = %(collection)s
                """,
                {"remaining": remaining, "rate": rate, "collection": collection_id, "went_on": went_on},
            )

    async def _ready(self, change: Reembedding) -> None:
        async with connection(self._pool) as conn:
            await conn.execute(
                "update reembedding set state = 'ready', updated_at = now()"
                " where collection_id = %s and generation_id = %s and state = 'building' and not cancelled",
                [change.collection_id, change.new.generation_id],
            )
        _log.info("a collection can be switched", collection=change.name, embedder=change.new.embedder.id)

    async def _failed(self, collection_id: int, problem: str) -> None:
        """Note what went wrong; nothing where the change is gone."""
        async with connection(self._pool) as conn:
            cursor = await conn.execute(
                """
                update reembedding set problem = %(problem)s, attempts = attempts + 1, updated_at = now(),
                    attempt_at = now() + make_interval(secs => least(2 ^ least(attempts, 10), %(longest)s)),
                    state = case when state = 'building' and attempts + 1 >= %(paused)s then 'paused' else state end
                where collection_id = %(collection)s and not cancelled
                returning attempts
                """,
                {
                    "problem": problem[:1000],
                    "longest": LONGEST_WAIT,
                    "paused": PAUSED_AFTER,
                    "collection": collection_id,
                },
            )
            row = await cursor.fetchone()
        if row is not None:
            _log.warning("a change of embedder does not go on; trying again", problem=problem, attempts=row[0])


class _Told:
    """Notes progress about once a second."""

    def __init__(self, owner: Reembedder, collection_id: int, remaining: int) -> None:
        self._owner = owner
        self._collection_id = collection_id
        self._remaining = remaining
        self._began = self._noted = time.monotonic()
        self._chunks = 0

    async def __call__(self, documents: int, chunks: int) -> None:
        self._remaining = max(0, self._remaining - documents)
        self._chunks += chunks
        now = time.monotonic()
        if now - self._noted >= _NOTE_SECONDS:
            self._noted = now
            rate = self._chunks / (now - self._began)
            await self._owner._note(self._collection_id, self._remaining, rate)  # noqa: SLF001 - its own helper
