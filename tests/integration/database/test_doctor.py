"""A diagnosis looks; it changes nothing in the database, and names what does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from router.doctor.checks import examine
from router.settings import load_settings
from standard.database.migrate import migrate

if TYPE_CHECKING:
    from pathlib import Path

    from router.doctor.finding import Finding

_CATALOGUE = """
    select 'role ' || rolname from pg_roles where rolname like 'pointsman%'
    union all select 'policy ' || tablename || ' ' || policyname || ' ' || coalesce(qual, '') from pg_policies
    union all select 'row security ' || relname || ' ' || relrowsecurity || ' ' || relforcerowsecurity
        from pg_class where relnamespace = 'public'::regnamespace
    union all select 'grants ' || relname || ' ' || coalesce(relacl::text, '')
        from pg_class where relnamespace = 'public'::regnamespace
    order by 1
"""


def catalogue(conn: psycopg.Connection) -> list[tuple[object, ...]]:
    """Roles, policies, row security and grants as they stand."""
    return conn.execute(_CATALOGUE).fetchall()


async def wall(url: str, data_dir: Path) -> Finding:
    """What doctor says of row security."""
    findings = await examine(load_settings(data_dir=data_dir, database={"url": url}))
    (found,) = (finding for finding in findings if finding.part == "row security")
    return found


async def test_a_wall_that_is_down_is_told_left_alone_and_put_up_by_migrate(
    empty_database_url: str, tmp_path: Path
) -> None:
    await migrate(empty_database_url)
    assert (await wall(empty_database_url, tmp_path)).status == "ok"
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute("alter table document disable row level security")
        before = catalogue(conn)
        found = await wall(empty_database_url, tmp_path)
        assert found.status == "warning"
        assert "document" in found.found
        assert "`pointsman migrate`" in found.advice
        assert catalogue(conn) == before, "a diagnosis changes nothing"
    await migrate(empty_database_url)
    assert (await wall(empty_database_url, tmp_path)).status == "ok"
