"""The latest runs of a tenant, a page at a time: what each was asked, what was decided, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from standard.database.pool import connection

if TYPE_CHECKING:
    import datetime as dt

    from standard.database.pool import Pool

MAX_PAGE = 100
"""Most runs of one page."""
QUESTION_CHARS = 500
"""Of a question no more is read for a list."""
# Of an answer only what a list shows leaves the database: its text and citations are most of what a run keeps.
_PAGE = """
    select run.run_id, request_id, state, run.created_at, left(question ->> 'question', %(chars)s),
        coalesce(question ->> 'collection', ''), decided.decision,
        case when ended.answer is not null then jsonb_build_object(
            'route', ended.answer -> 'route', 'outcome', ended.answer -> 'outcome',
            'stop_reason', ended.answer -> 'stop_reason', 'steps', ended.answer -> 'steps',
            'total_seconds', ended.answer #> '{timings,total_seconds}', 'cost_usd', ended.answer #> '{usage,cost_usd}'
        ) end,
        rating, coalesce((question -> 'probe')::boolean, false)
    from run left join feedback using (run_id)
        left join lateral (select body #> '{body,decision}' as decision from run_events event
            where event.run_id = run.run_id and kind = 'decision' order by sequence desc limit 1) decided on true
        left join lateral (select body #> '{body,answer}' as answer from run_events event
            where event.run_id = run.run_id and kind = 'completed' order by sequence desc limit 1) ended on true
    where tenant = %(tenant)s and run.run_id < %(before)s
        and run.created_at >= now() - make_interval(secs => %(retention)s)
    order by run.run_id desc limit %(limit)s
"""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run of a list. `question` is what consent left of it, None where that is nothing.

    `decision` and `answer` are JSON objects with the fields of Decision, and of Answer as far as a list shows them;
    None where the run did not come so far. `probe`: the gateway asked it itself (a golden question).
    """

    run_id: int
    request_id: str
    state: str
    created_at: dt.datetime
    question: str | None
    collection: str
    decision: dict[str, Any] | None
    answer: dict[str, Any] | None
    rating: float | None
    probe: bool


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest first; `before` continues the list, None = this was the last page."""

    runs: tuple[ListedRun, ...]
    before: int | None


async def latest_runs(
    pool: Pool, tenant: str, *, retention_days: float, before: int | None = None, limit: int = 20
) -> RunPage:
    """Return a page of a tenant's runs in whatever state, older than the run `before`; `limit` 1 to MAX_PAGE.

    Runs beyond their retention are left out. Raises DatabaseUnavailable.
    """
    assert 1 <= limit <= MAX_PAGE  # noqa: S101 - the edge has checked it
    async with connection(pool) as conn:
        cursor = await conn.execute(
            _PAGE,
            {
                "chars": QUESTION_CHARS,
                "tenant": tenant,
                "before": 2**62 if before is None else before,
                "retention": retention_days * 86_400.0,
                "limit": limit + 1,
            },
        )
        found = [ListedRun(*row) for row in await cursor.fetchall()]
    return RunPage(tuple(found[:limit]), found[limit - 1].run_id if len(found) > limit else None)
