"""Migrations over a real PostgreSQL."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from standard.database import migrate as module
from standard.database.migrate import Migration, check_schema, load_migrations, migrate, parse_version
from standard.database.pool import DatabaseConfig, open_pool
from standard.domain.errors import DatabaseUnavailable, FailedPrecondition
from tests.support.transaction_pooler import transaction_pooler

if TYPE_CHECKING:
    from standard.database.pool import Pool

ROOT = Path(__file__).resolve().parents[3]


def added(version: int, sql: str, readable_by: int) -> Migration:
    """Make a migration of a later release."""
    return Migration(version, f"{version:04}_later.sql", sql, f"checksum of {sql}", readable_by)


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(statement.encode()).fetchall()


async def test_an_empty_database_gets_everything_once(empty_database_url: str) -> None:
    first = await migrate(empty_database_url)
    second = await migrate(empty_database_url)
    names = tuple(migration.name for migration in load_migrations())
    assert (first.from_version, first.to_version, first.applied) == (0, len(names), names)
    assert (second.from_version, second.applied) == (len(names), ())
    assert parse_version(first.pgvector) >= module.MINIMUM_PGVECTOR
    await check_schema(empty_database_url)


async def test_processes_that_migrate_at_once_apply_each_file_once(empty_database_url: str) -> None:
    program = "import asyncio, sys; from standard.database.migrate import migrate; asyncio.run(migrate(sys.argv[1]))"

    async def run() -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, empty_database_url, cwd=ROOT, stderr=asyncio.subprocess.PIPE
        )
        _, errors = await process.communicate()
        return process.returncode, errors.decode()

    for code, errors in await asyncio.gather(*(run() for _ in range(4))):
        assert code == 0, errors
    rows = query(empty_database_url, "select version from schema_migration order by version")
    assert rows == [(number + 1,) for number in range(len(load_migrations()))]
    assert query(empty_database_url, "select count(*) from checkpoint_migrations") == [
        (len(AsyncPostgresSaver.MIGRATIONS),)
    ]


async def test_langgraph_keeps_checkpoints_over_our_pool(pool: Pool) -> None:
    saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
    await saver.setup()  # what migrate did is all there is to do
    assert await saver.aget_tuple({"configurable": {"thread_id": "none"}}) is None


async def test_migrations_run_behind_a_pooler(empty_database_url: str) -> None:
    async with transaction_pooler(empty_database_url) as (url, _):
        report = await migrate(url)
        assert report.from_version == 0
        async with open_pool(DatabaseConfig(url=url)) as pool:
            assert await AsyncPostgresSaver(pool).aget_tuple({"configurable": {"thread_id": "none"}}) is None  # type: ignore[arg-type]


async def test_a_later_release_adds_to_what_is_there(database_url: str) -> None:
    known = load_migrations()
    later = (*known, added(len(known) + 1, "create table later (n int)", readable_by=len(known)))
    report = await migrate(database_url, migrations=later)
    assert report.applied == (f"{len(known) + 1:04}_later.sql",)
    assert query(database_url, "select count(*) from later") == [(0,)]


async def test_the_previous_release_serves_from_a_newer_database_and_does_not_migrate_it(database_url: str) -> None:
    known = load_migrations()
    await migrate(database_url, migrations=(*known, added(len(known) + 1, "create table later ()", len(known))))
    await check_schema(database_url)
    with pytest.raises(FailedPrecondition, match=r"newer than this release.*can still serve from it"):
        await migrate(database_url)


async def test_a_release_too_old_for_the_database_is_refused(database_url: str) -> None:
    known = load_migrations()
    number = len(known) + 1
    await migrate(database_url, migrations=(*known, added(number, "alter table document drop column uri", number)))
    with pytest.raises(FailedPrecondition, match="install a newer pointsman"):
        await check_schema(database_url)
    with pytest.raises(
        FailedPrecondition, match=r"newer than this release's \d+: install a newer pointsman to migrate$"
    ):
        await migrate(database_url)


async def test_a_file_that_differs_from_what_was_applied_is_refused(database_url: str) -> None:
    first, *rest = load_migrations()
    with pytest.raises(FailedPrecondition, match="differs from the one this database was made with"):
        await migrate(database_url, migrations=[dataclasses.replace(first, checksum="other"), *rest])


async def test_a_migration_that_fails_leaves_nothing_of_it(database_url: str) -> None:
    known = load_migrations()
    broken = added(len(known) + 1, "create table half (); select 1 / 0", readable_by=len(known))
    with pytest.raises(psycopg.errors.DivisionByZero):
        await migrate(database_url, migrations=(*known, broken))
    assert query(database_url, "select to_regclass('half'), count(*) from schema_migration") == [(None, len(known))]


async def test_a_database_that_was_never_migrated_says_what_to_run(empty_database_url: str) -> None:
    with pytest.raises(FailedPrecondition, match=r"schema version 0, this release needs .*pointsman migrate"):
        await check_schema(empty_database_url)


async def test_an_old_pgvector_is_refused_or_tolerated(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MINIMUM_PGVECTOR", (99, 0, 0))
    with pytest.raises(
        FailedPrecondition, match=r"pgvector 0\.8\.\d+ has bugs that damage indexes; install pgvector 99"
    ):
        await migrate(empty_database_url)
    report = await migrate(empty_database_url, allow_old_pgvector=True)
    assert len(report.warnings) == 1


async def test_a_lock_that_somebody_keeps_is_not_waited_for_for_ever(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as conn:
        conn.execute("select pg_advisory_lock(%s)", [module._LOCK_KEY])
        with pytest.raises(DatabaseUnavailable, match="another process has been migrating"):
            await migrate(empty_database_url, lock_timeout=0.3)


async def test_a_role_that_may_not_create_extensions_learns_who_can(
    empty_database_url: str,
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute("drop role if exists plain")
        conn.execute("create role plain login password 'plain'")
        conn.execute("grant all on schema public to plain")
    url = psycopg.conninfo.make_conninfo(empty_database_url, user="plain", password="plain")
    with pytest.raises(FailedPrecondition, match="have an administrator run `create extension vector`"):
        await migrate(url)


@pytest.mark.parametrize(("text", "numbers"), [("0.8.6", (0, 8, 6)), ("0.9.0-rc1", (0, 9, 0)), ("1", (1,)), ("x", ())])
def test_versions_are_compared_as_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers


def test_every_migration_can_be_read_by_the_release_before_it() -> None:
    for migration in load_migrations()[1:]:
        assert migration.readable_by < migration.version, "expand first, contract in a later release"
