"""The journal in PostgreSQL: tables run and run_events.

A run is begun once per (tenant, request_id); its events are appended in order and committed before a reader is told of
the end. One worker owns a run, by a lease that it renews; whoever claims a run whose lease ran out gets it under a new
name, and what the earlier owner still tries to write is refused. Every function takes one transaction of its own.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.sql import SQL, Identifier
from psycopg.types.json import Jsonb

from router.journal.codec import Consent, EventCodec, redact
from router.journal.finished import FinishedRun, finished_run
from standard.database.pool import connection, the_row, transaction
from standard.domain.errors import NotFound, Unavailable
from standard.domain.event import Event
from standard.unicode import encodable, in_texts, storable

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from standard.database.pool import Connection, Pool


@dataclass(frozen=True, slots=True)
class BegunRun:
    """A run's row as a call found it.

    `owner` names the caller's hold on the run; "" where somebody else has it or it has ended. `state` is what it was
    before the call ("" for a run that the call made), `last_sequence` the number of events there are.
    """

    run_id: int
    owner: str
    body_hash: str
    state: str = ""
    last_sequence: int = 0


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One row of run_events; `body` is its JSON value, `trace` the traceparent under which it was written, or ""."""

    sequence: int
    at: dt.datetime
    kind: str
    body: dict[str, Any]
    text: str
    trace: str = ""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the journal has it. `deserted`: it is running, and its owner's lease has run out."""

    run_id: int
    request_id: str
    body_hash: str
    state: str
    created_at: dt.datetime
    question: dict[str, Any] | None
    entries: tuple[StoredEntry, ...]
    deserted: bool = False

    @property
    def trace_ids(self) -> list[str]:
        """The traces in which the entries were written, each once, oldest first."""
        return list(dict.fromkeys(entry.trace.split("-")[1] for entry in self.entries if entry.trace.count("-") == 3))


_PUT = """
    put as (
        insert into run_events (run_id, sequence, kind, body)
        select held.run_id, sequence, kind, body
        from held, unnest(%(sequences)s::int[], %(kinds)s::text[], %(bodies)s::jsonb[]) as fresh (sequence, kind, body)
        on conflict do nothing
    )
    select count(*) from held
"""
# The row is locked, so that no claim comes between the look at the owner and the insert.
_ADD = f"""
    with held as (
        select run_id from run where run_id = %(run)s and owner = %(owner)s and state = 'running' for share
    ), {_PUT}
"""  # noqa: S608 - constants
_ADD_AND_MOVE = f"""
    with held as (
        update run set state = %(state)s, lease_until = null,
            finished_at = case when %(state)s in ('done', 'failed') then now() end
        where run_id = %(run)s and owner = %(owner)s and state = 'running' returning run_id
    ), {_PUT}
"""  # noqa: S608 - constants
_NEWEST = 2**63 - 1
"""Beyond every run id."""
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class Journal:
    """Writes and reads runs; `consent` says what is kept of their texts. `owner` names this process for people."""

    def __init__(self, pool: Pool, *, consent: Consent, owner: str, lease_seconds: float = 30.0) -> None:
        self._pool = pool
        self._consent: Consent = consent
        self._owner = owner
        self._lease = lease_seconds
        self._codec = EventCodec()

    @property
    def consent(self) -> Consent:
        """What is kept of questions, queries and answers."""
        return self._consent

    @property
    def lease_seconds(self) -> float:
        """How long a run stays its owner's without being renewed."""
        return self._lease

    async def begin(
        self, tenant: str, request_id: str, body_hash: str, question: dict[str, Any] | None, session_id: str
    ) -> BegunRun:
        """Insert a run; where there is one of that id, claim it."""
        owner = self._new_owner()
        async with transaction(self._pool) as conn:
            # A lost begin is a request that nobody was told of, so it need not wait for the disk.
            await conn.execute("select set_config('synchronous_commit', 'off', true)")
            cursor = await conn.execute(
                """
                insert into run (tenant, request_id, body_hash, state, owner, lease_until, question, session_id,
                subject) values (%s, %s, %s, 'running', %s, now() + make_interval(secs => %s), %s, %s, %s)
                on conflict (tenant, request_id) do nothing
                returning run_id
                """,
                (
                    tenant,
                    request_id,
                    body_hash,
                    owner,
                    self._lease,
                    None if question is None else Jsonb(in_texts(question, storable)),
                    session_id,
                    session_id,
                ),
            )
            row = await cursor.fetchone()
            if row is not None:
                return BegunRun(row[0], owner, body_hash)
        try:
            return await self.claim(tenant, request_id, body_hash)
        except NotFound:
            message = f"run {request_id!r} was deleted at this moment; ask again"
            raise Unavailable(message, retry_after_seconds=0.1) from None

    async def claim(self, tenant: str, request_id: str, body_hash: str, reply: str = "") -> BegunRun:
        """Take a run of that body whose worker failed or died, or with a `reply` one that waits for it.

        The run is left alone where another has it or it has ended. Raises NotFound where it is gone.
        """
        owner = self._new_owner()
        async with transaction(self._pool) as conn:
            cursor = await conn.execute(
                """
                select run_id, body_hash, state, lease_until is null or lease_until < now(),
                    (select coalesce(max(sequence), 0) from run_events e where e.run_id = run.run_id)
                from run where tenant = %s and request_id = %s for update
                """,
                (tenant, request_id),
            )
            found = await cursor.fetchone()
            if found is None:
                raise NotFound(f"no run {request_id!r}")
            run_id, known_hash, state, free, last = found
            ours = known_hash == body_hash and (
                state == "failed" or (state == "running" and free) or (state == "waiting" and bool(reply))
            )
            if ours:
                await conn.execute(
                    """
                    update run set state = 'running', owner = %s, lease_until = now() + make_interval(secs => %s),
                        finished_at = null, question = case when state <> 'waiting' then question else
                            question || jsonb_build_object(
                                'replies', coalesce(question -> 'replies', '[]') || to_jsonb(%s::text))
                        end
                    where run_id = %s
                    """,
                    (owner, self._lease, reply, run_id),
                )
        return BegunRun(run_id, owner if ours else "", known_hash, state, last)

    async def learn(self, run: BegunRun, values: dict[str, Any]) -> None:
        """Keep what was settled of a run's question, for whoever goes on with it; the run must be the caller's."""
        async with connection(self._pool) as conn:
            await conn.execute(
                "update run set question = question || %s where run_id = %s and owner = %s and question is not null",
                (Jsonb(in_texts(values, storable)), run.run_id, run.owner),
            )

    async def session(
        self, tenant: str, session_id: str, before: str, limit: int
    ) -> list[tuple[dict[str, Any] | None, str]]:
        """The last questions of a session as they are kept, each with its answer's text, oldest first.

        Only what was answered within a day, and before the run whose request id is `before` where that is kept.
        """
        async with connection(self._pool) as conn:
            cursor = await conn.execute(
                """
                select question, coalesce((
                    select body -> 'body' -> 'answer' ->> 'text' from run_events e
                    where e.run_id = run.run_id and e.kind = 'completed' order by sequence desc limit 1), '')
                from run where tenant = %(tenant)s and subject = %(session)s and session_id = %(session)s
                    and state = 'done' and created_at > now() - interval '1 day'
                    and run_id < coalesce(
                        (select run_id from run where tenant = %(tenant)s and request_id = %(before)s), %(newest)s)
                order by run_id desc limit %(limit)s
                """,
                {"tenant": tenant, "session": session_id, "before": before, "newest": _NEWEST, "limit": limit},
            )
            return list(reversed(await cursor.fetchall()))

    async def latest_of(self, tenant: str, session_id: str) -> str | None:
        """The request id of a session's latest run, None where there is none."""
        async with connection(self._pool) as conn:
            cursor = await conn.execute(
                "select request_id from run where tenant = %s and subject = %s and session_id = %s"
                " order by run_id desc limit 1",
                (tenant, session_id, session_id),
            )
            row = await cursor.fetchone()
        return None if row is None else str(row[0])

    def _new_owner(self) -> str:
        return f"{self._owner}:{secrets.token_hex(4)}"

    async def renew(self, runs: Sequence[BegunRun]) -> None:
        """Prolong the leases of runs that are worked on; one that another has by now is left alone."""
        if not runs:
            return
        async with connection(self._pool) as conn:
            await conn.execute(
                "update run set lease_until = now() + make_interval(secs => %s)"
                " from unnest(%s::bigint[], %s::text[]) as held (run_id, owner)"
                " where run.run_id = held.run_id and run.owner = held.owner and run.state = 'running'",
                (self._lease, [run.run_id for run in runs], [run.owner for run in runs]),
            )

    async def append(self, run: BegunRun, events: Sequence[Event], *, state: str = "running", trace: str = "") -> None:
        """Append events in order and move the run to `state`, at once; `trace` is kept with the first of them.

        Raises Unavailable where another has taken the run over, NotFound where it was erased meanwhile.
        """
        rows = [self._row(event, trace if event is events[0] else "") for event in events]
        async with connection(self._pool) as conn:
            cursor = await conn.execute(
                _ADD if state == "running" else _ADD_AND_MOVE,
                {
                    "state": state,
                    "run": run.run_id,
                    "owner": run.owner,
                    "sequences": [row[0] for row in rows],
                    "kinds": [row[1] for row in rows],
                    "bodies": [row[2] for row in rows],
                },
            )
            held = (await the_row(cursor))[0]
        if not held:
            await self._explain_loss(run)

    async def _explain_loss(self, run: BegunRun) -> None:
        async with connection(self._pool) as conn:
            cursor = await conn.execute("select 1 from run where run_id = %s", (run.run_id,))
            there = await cursor.fetchone()
        if there is None:
            raise NotFound("the run was erased while it was worked on")
        raise Unavailable("the run is another worker's by now; ask again with the same id", retry_after_seconds=0.5)

    def _row(self, event: Event, trace: str) -> tuple[int, str, str]:
        body = self._codec.encode(redact(event.body, self._consent))
        text = event.text if self._consent == "text" else ""
        traced = f'"trace": {json.dumps(trace)}, ' if trace else ""
        wrapped = f'{{{traced}"text": {json.dumps(encodable(text))}, "body": {body}}}'
        return event.sequence, self._codec.kind(event.body), without_escaped_nul(wrapped)

    async def load(self, tenant: str, request_id: str, *, after_sequence: int = 0) -> StoredRun | None:
        """A run with its entries after a sequence, or None."""
        async with transaction(self._pool) as conn:
            cursor = await conn.execute(
                "select run_id, body_hash, state, created_at, question,"
                " state = 'running' and (lease_until is null or lease_until < now())"
                " from run where tenant = %s and request_id = %s",
                (tenant, request_id),
            )
            run = await cursor.fetchone()
            if run is None:
                return None
            cursor = await conn.execute(
                "select sequence, at, kind, body from run_events where run_id = %s and sequence > %s order by sequence",
                (run[0], after_sequence),
            )
            entries = tuple(
                StoredEntry(sequence, at, kind, body["body"], body["text"], body.get("trace", ""))
                for sequence, at, kind, body in await cursor.fetchall()
            )
        return StoredRun(run[0], request_id, run[1], run[2], run[3], run[4], entries, deserted=run[5])

    def events(self, run: StoredRun) -> list[Event]:
        """The entries of a run as events."""
        return [Event(entry.sequence, self._codec.decode(entry.kind, entry.body), entry.text) for entry in run.entries]

    async def erase(self, tenant: str, subject: str) -> int:
        """Delete every run of a session or request id, with events, feedback and checkpoints; returns how many.

        Later runs of the same sessions read them: what they took over of them word by word, and their state, goes too.
        """
        async with transaction(self._pool) as conn:
            cursor = await conn.execute(
                "delete from run where tenant = %s and (request_id = %s or session_id = %s or subject = %s)"
                " returning request_id, session_id",
                (tenant, subject, subject, subject),
            )
            gone = await cursor.fetchall()
            sessions = sorted({session_id for _, session_id in gone if session_id})
            cursor = await conn.execute(
                "update run set question = question - 'standalone' where tenant = %s and subject = any(%s)"
                " returning request_id",
                (tenant, sessions),
            )
            read = await cursor.fetchall()
            await _delete_checkpoints(conn, [thread_of(tenant, row[0]) for row in (*gone, *read)])
        return len(gone)

    async def purge(self, retention_days: float, *, batch: int = 1000) -> int:
        """Delete runs older than the retention, at most `batch` of them; returns how many."""
        async with transaction(self._pool) as conn:
            cursor = await conn.execute(
                """
                delete from run where run_id in (
                    select run_id from run where created_at < now() - make_interval(secs => %s)
                    order by created_at limit %s for update skip locked
                ) returning tenant, request_id
                """,
                (retention_days * 86_400.0, batch),
            )
            gone = [thread_of(*row) for row in await cursor.fetchall()]
            await _delete_checkpoints(conn, gone)
        return len(gone)

    async def forget_state(self, tenant: str, request_id: str) -> None:
        """Delete the checkpoints of a run: it begins again, or it was erased while they were written."""
        async with transaction(self._pool) as conn:
            await _delete_checkpoints(conn, [thread_of(tenant, request_id)])

    async def judged(self, tenant: str, request_id: str) -> FinishedRun | None:
        """A run with what its end and its feedback say of its route, or None."""
        return await finished_run(self._pool, self._codec, tenant, request_id)

    async def add_feedback(
        self, tenant: str, request_id: str, rating: float | None, correct_route: str, comment: str
    ) -> bool:
        """Store feedback, replacing earlier feedback on the same run; False where there is no such run."""
        async with transaction(self._pool) as conn:
            cursor = await conn.execute(
                """
                insert into feedback (run_id, rating, correct_route, comment)
                select run_id, %s, %s, %s from run where tenant = %s and request_id = %s
                on conflict (run_id) do update
                set rating = excluded.rating, correct_route = excluded.correct_route, comment = excluded.comment,
                    created_at = now()
                """,
                (rating, correct_route, comment, tenant, request_id),
            )
            return bool(cursor.rowcount == 1)


def without_escaped_nul(text: str) -> str:
    """JSON text with each escaped NUL replaced; PostgreSQL's jsonb holds none. A backslash before `u0000` stays."""
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def thread_of(tenant: str, request_id: str) -> str:
    """The name under which a run's checkpoints are kept."""
    return f"{tenant}/{request_id}"


async def _delete_checkpoints(conn: Connection, threads: list[str]) -> None:
    if not threads:
        return
    for table in ("checkpoint_writes", "checkpoint_blobs", "checkpoints"):
        await conn.execute(SQL("delete from {} where thread_id = any(%s)").format(Identifier(table)), (threads,))
