"""Ended runs with what is needed to judge and to learn from them, newest first, a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from router.routing.outcomes import Feedback, RunFacts, facts_of
from standard.database.pool import connection
from standard.domain.question import Route

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncGenerator

    from router.journal.codec import EventCodec
    from standard.database.pool import Pool

BATCH = 50
"""Runs that are in memory at once; each may bring a long history."""
_KINDS = ["decision", "sufficiency", "escalation", "completed"]
# Without the answer's words and citations: nothing here needs them, and they are most of what a run keeps.
_EVENTS = """
    (select coalesce(jsonb_agg(jsonb_build_array(kind, case kind when 'completed' then
            jsonb_set(body -> 'body', '{answer}',
                (body -> 'body' -> 'answer') - '{citations,clarification,notices}'::text[] || '{"text": ""}')
            else body -> 'body' end) order by sequence), '[]')
        from run_events e where e.run_id = run.run_id and kind = any(%(kinds)s))
"""
_PAGE = f"""
    select run.run_id, tenant, request_id, run.created_at, question, rating, correct_route, {_EVENTS}
    from run left join feedback using (run_id)
    where run.state <> 'running' and run.run_id < %(before)s and not coalesce((question -> 'probe')::boolean, false)
        and run.created_at >= now() - make_interval(secs => %(retention)s)
        and (%(since)s::timestamptz is null or run.created_at >= %(since)s)
        and (%(tenant)s = '' or tenant = %(tenant)s)
        and (%(collection)s = '' or question ->> 'collection' = %(collection)s)
    order by run.run_id desc limit %(batch)s
"""  # noqa: S608 - constants
_ONE = f"""
    select run.run_id, tenant, request_id, run.created_at, question, rating, correct_route, {_EVENTS}
    from run left join feedback using (run_id) where tenant = %(tenant)s and request_id = %(request)s
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that is no longer worked on; `question` as consent left it, `readable` False where its events are not."""

    run_id: int
    tenant: str
    request_id: str
    created_at: dt.datetime
    question: dict[str, Any] | None
    facts: RunFacts
    feedback: Feedback
    readable: bool = True


async def finished_runs(
    pool: Pool,
    codec: EventCodec,
    *,
    retention_days: float,
    since: dt.datetime | None = None,
    tenant: str = "",
    collection: str = "",
) -> AsyncGenerator[FinishedRun]:
    """Yield ended runs, newest first; "" and None do not narrow. What the gateway asked itself is none of them.

    Runs beyond their retention are left out even where the purge has not come to them yet. Runs of which the journal
    keeps no question belong to no collection. Raises DatabaseUnavailable.
    """
    before = 2**62
    while True:
        async with connection(pool) as conn:
            cursor = await conn.execute(
                _PAGE,
                {
                    "kinds": _KINDS,
                    "before": before,
                    "retention": retention_days * 86_400.0,
                    "since": since,
                    "tenant": tenant,
                    "collection": collection,
                    "batch": BATCH,
                },
            )
            rows = await cursor.fetchall()
        for row in rows:
            yield _run_of(codec, *row)
        if len(rows) < BATCH:
            return
        before = rows[-1][0]


async def finished_run(pool: Pool, codec: EventCodec, tenant: str, request_id: str) -> FinishedRun | None:
    """Return one run in whatever state it is, or None where there is none."""
    async with connection(pool) as conn:
        cursor = await conn.execute(_ONE, {"kinds": _KINDS, "tenant": tenant, "request": request_id})
        row = await cursor.fetchone()
    return None if row is None else _run_of(codec, *row)


def _run_of(
    codec: EventCodec,
    run_id: int,
    tenant: str,
    request_id: str,
    created_at: dt.datetime,
    question: dict[str, Any] | None,
    rating: float | None,
    correct_route: str | None,
    events: list[tuple[str, Any]],
) -> FinishedRun:
    feedback = Feedback(rating, Route(correct_route) if correct_route else None)
    try:
        facts = facts_of([codec.decode(kind, body) for kind, body in events])
    except ValueError:  # another release wrote it
        return FinishedRun(run_id, tenant, request_id, created_at, question, RunFacts(), feedback, readable=False)
    return FinishedRun(run_id, tenant, request_id, created_at, question, facts, feedback)
