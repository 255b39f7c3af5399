"""The journal in PostgreSQL: tables run and run_events.

A run is begun once per (tenant, request_id); its events are appended in order and committed before a reader is told of
the end. Every function takes one transaction of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.sql import SQL, Identifier
from psycopg.types.json import Jsonb

from router.journal.codec import Consent, EventCodec, redact
from standard.database.pool import transaction
from standard.domain.errors import Unavailable
from standard.domain.event import Event

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from standard.database.pool import Connection, Pool


@dataclass(frozen=True, slots=True)
class BegunRun:
    """A run's row. `fresh` is True when this call made it; else it was there, with its own body_hash and state."""

    run_id: int
    fresh: bool
    body_hash: str
    state: str


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One row of run_events; `body` is its JSON value."""

    sequence: int
    at: dt.datetime
    kind: str
    body: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the journal has it."""

    run_id: int
    request_id: str
    body_hash: str
    state: str
    created_at: dt.datetime
    question: dict[str, Any] | None
    entries: tuple[StoredEntry, ...]


class Journal:
    """Writes and reads runs; `consent` says what is kept of their texts."""

    def __init__(self, pool: Pool, *, consent: Consent, owner: str, lease_seconds: float = 60.0) -> None:
        self._pool = pool
        self._consent: Consent = consent
        self._owner = owner
        self._lease = lease_seconds
        self._codec = EventCodec()

    @property
    def consent(self) -> Consent:
        """What is kept of questions, queries and answers."""
        return self._consent

    async def begin(
        self, tenant: str, request_id: str, body_hash: str, question: dict[str, Any] | None, session_id: str
    ) -> BegunRun:
        """Insert a run, or find the one of that id."""
        async with transaction(self._pool) as connection:
            # A lost begin is a request that nobody was told of, so it need not wait for the disk.
            await connection.execute("select set_config('synchronous_commit', 'off', true)")
            cursor = await connection.execute(
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
                    self._owner,
                    self._lease,
                    None if question is None else Jsonb(without_nul(question)),
                    session_id,
                    session_id,
                ),
            )
            row = await cursor.fetchone()
            if row is not None:
                return BegunRun(row[0], fresh=True, body_hash=body_hash, state="running")
            cursor = await connection.execute(
                "select run_id, body_hash, state from run where tenant = %s and request_id = %s", (tenant, request_id)
            )
            found = await cursor.fetchone()
        if found is None:
            raise Unavailable(f"run {request_id!r} was deleted at this moment; ask again", retry_after_seconds=0.1)
        return BegunRun(found[0], fresh=False, body_hash=found[1], state=found[2])

    async def append(self, run_id: int, events: Sequence[Event], *, state: str | None = None) -> None:
        """Append events in order and, where `state` is given, move the run to it in the same transaction."""
        rows = [self._row(event) for event in events]
        async with transaction(self._pool) as connection:
            if rows:
                sequences, kinds, bodies = zip(*rows, strict=True)
                await connection.execute(
                    "insert into run_events (run_id, sequence, kind, body)"
                    " select %s, sequence, kind, body from unnest(%s::int[], %s::text[], %s::jsonb[])"
                    " as fresh (sequence, kind, body) on conflict do nothing",
                    (run_id, list(sequences), list(kinds), list(bodies)),
                )
            if state is not None:
                await connection.execute(
                    "update run set state = %s, lease_until = null,"
                    " finished_at = case when %s in ('done', 'failed') then now() end where run_id = %s",
                    (state, state, run_id),
                )

    def _row(self, event: Event) -> tuple[int, str, str]:
        body = self._codec.encode(redact(event.body, self._consent))
        text = event.text if self._consent == "text" else ""
        wrapped = f'{{"text": {json.dumps(text)}, "body": {body}}}'
        # PostgreSQL's jsonb holds no NUL; a NUL can only come from a document or a model.
        return event.sequence, self._codec.kind(event.body), wrapped.replace("\\u0000", "\\ufffd")

    async def load(self, tenant: str, request_id: str, *, after_sequence: int = 0) -> StoredRun | None:
        """A run with its entries after a sequence, or None."""
        async with transaction(self._pool) as connection:
            cursor = await connection.execute(
                "select run_id, body_hash, state, created_at, question from run where tenant = %s and request_id = %s",
                (tenant, request_id),
            )
            run = await cursor.fetchone()
            if run is None:
                return None
            cursor = await connection.execute(
                "select sequence, at, kind, body from run_events where run_id = %s and sequence > %s order by sequence",
                (run[0], after_sequence),
            )
            entries = tuple(
                StoredEntry(sequence, at, kind, body["body"], body["text"])
                for sequence, at, kind, body in await cursor.fetchall()
            )
        return StoredRun(run[0], request_id, run[1], run[2], run[3], run[4], entries)

    def events(self, run: StoredRun) -> list[Event]:
        """The entries of a run as events."""
        return [Event(entry.sequence, self._codec.decode(entry.kind, entry.body), entry.text) for entry in run.entries]

    async def erase(self, tenant: str, subject: str) -> int:
        """Delete every run of a session or request id, with events, feedback and checkpoints; returns how many."""
        async with transaction(self._pool) as connection:
            cursor = await connection.execute(
                "delete from run where tenant = %s and (request_id = %s or session_id = %s or subject = %s)"
                " returning tenant, request_id",
                (tenant, subject, subject, subject),
            )
            gone = [thread_of(*row) for row in await cursor.fetchall()]
            await _delete_checkpoints(connection, gone)
        return len(gone)

    async def purge(self, retention_days: float, *, batch: int = 1000) -> int:
        """Delete runs older than the retention, at most `batch` of them; returns how many."""
        async with transaction(self._pool) as connection:
            cursor = await connection.execute(
                """
                delete from run where run_id in (
                    select run_id from run where created_at < now() - make_interval(secs => %s)
                    order by created_at limit %s for update skip locked
                ) returning tenant, request_id
                """,
                (retention_days * 86_400.0, batch),
            )
            gone = [thread_of(*row) for row in await cursor.fetchall()]
            await _delete_checkpoints(connection, gone)
        return len(gone)

    async def add_feedback(
        self, tenant: str, request_id: str, rating: float | None, correct_route: str, comment: str
    ) -> bool:
        """Store feedback, replacing earlier feedback on the same run; False where there is no such run."""
        async with transaction(self._pool) as connection:
            cursor = await connection.execute(
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


def thread_of(tenant: str, request_id: str) -> str:
    """The name under which a run's checkpoints are kept."""
    return f"{tenant}/{request_id}"


async def _delete_checkpoints(connection: Connection, threads: list[str]) -> None:
    if not threads:
        return
    for table in ("checkpoint_writes", "checkpoint_blobs", "checkpoints"):
        await connection.execute(SQL("delete from {} where thread_id = any(%s)").format(Identifier(table)), (threads,))


def without_nul(question: dict[str, Any]) -> dict[str, Any]:
    """A question's values with NUL replaced: PostgreSQL's jsonb can't hold it."""
    return {
        key: value.replace("\x00", "\ufffd") if isinstance(value, str) else value for key, value in question.items()
    }
