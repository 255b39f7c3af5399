"""Prevents: verdicts of yesterday's rules, or of another policy, that stand beside chunks for ever.

Chunks whose verdict is of another version are judged again, a bounded batch in a transaction, so that searches and
ingests go on meanwhile and an interrupted run goes on where it was. Rows that somebody else is about to change are left
to them.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from standard.corpus.collections import partition
from standard.database.pool import connection, limit_statements, transaction
from standard.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from standard.corpus.collections import Collection
    from standard.corpus.scan import Scan, ScanVerdict
    from standard.database.pool import Pool

BATCH = 200
"""Chunks judged in one transaction: a quarter of a second of one core."""
_SECONDS = 120.0  # bound of each statement


@dataclass(frozen=True, slots=True)
class RescanReport:
    """Passages that were judged again, and how many of them have another verdict now."""

    passages: int
    changed: int


async def rescan(
    pool: Pool,
    collection: Collection,
    scan: Scan,
    version: str,
    *,
    document_keys: Sequence[int] | None = None,
    progress: Callable[[RescanReport], None] | None = None,
) -> RescanReport:
    """Judge again whatever was judged under another version, in the whole collection or in some documents.

    Raises DatabaseUnavailable.
    """
    report = RescanReport(0, 0)
    after = 0
    while True:
        async with transaction(pool) as conn:
            await limit_statements(conn, _SECONDS)
            cursor = await conn.execute(
                _select(collection.generation_id, some=document_keys is not None),
                {
                    "after": after,
                    "version": version,
                    "batch": BATCH,
                    "documents": None if document_keys is None else list(document_keys),
                },
            )
            rows = await cursor.fetchall()
            if not rows:
                return report
            verdicts = await asyncio.to_thread(_judge, rows, scan)
            await conn.execute(
                _update(collection.generation_id),
                {
                    "keys": [row[0] for row in rows],
                    "verdicts": [verdict.verdict for verdict in verdicts],
                    "scans": [json.dumps(scan_record(verdict)) for verdict in verdicts],
                },
            )
        after = rows[-1][0]
        changed = sum(row[3] != verdict.verdict for row, verdict in zip(rows, verdicts, strict=True))
        report = RescanReport(report.passages + len(rows), report.changed + changed)
        if progress is not None:
            progress(report)


async def count_verdicts(pool: Pool, collection: Collection) -> Mapping[str, int]:
    """How many passages of a collection have which verdict."""
    async with connection(pool, statement_timeout=_SECONDS) as conn:
        cursor = await conn.execute(
            sql.SQL("select verdict, count(*) from {} group by verdict").format(
                partition("chunk", collection.generation_id)
            )
        )
        return dict(await cursor.fetchall())


def scan_record(verdict: ScanVerdict) -> dict[str, object]:
    """What is stored of a verdict beside its name: techniques, reason, version; nothing where no rules spoke."""
    if not verdict.rules_version:
        return {}
    return {
        "techniques": verdict.techniques,
        "reason": encodable(verdict.reason).replace("\x00", ""),
        "rules_version": verdict.rules_version,
    }


def _judge(rows: Sequence[tuple[int, str, str, str]], scan: Scan) -> list[ScanVerdict]:
    return [scan(title, text) for _, title, text, _ in rows]


def _select(generation: int, *, some: bool) -> sql.Composed:
    return sql.SQL(
        """
        select c.chunk_key, d.title, c.text, c.verdict
        from {chunk} c join document d on d.document_key = c.document_key
        where c.chunk_key > %(after)s and c.scan ->> 'rules_version' is distinct from %(version)s {some}
        order by c.chunk_key limit %(batch)s
        for update of c skip locked
        """
    ).format(
        chunk=partition("chunk", generation),
        some=sql.SQL("and c.document_key = any(%(documents)s::bigint[])" if some else ""),
    )


def _update(generation: int) -> sql.Composed:
    return sql.SQL(
        """
        update {chunk} c set verdict = judged.verdict, scan = judged.scan::jsonb
        from unnest(%(keys)s::bigint[], %(verdicts)s::text[], %(scans)s::text[]) judged(chunk_key, verdict, scan)
        where c.chunk_key = judged.chunk_key
        """
    ).format(chunk=partition("chunk", generation))
