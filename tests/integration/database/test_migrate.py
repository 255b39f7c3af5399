"""Migrations over a real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standard.database.migrate import check_schema, load_migrations, migrate

if TYPE_CHECKING:
    from standard.database.pool import Pool


async def test_an_empty_database_gets_everything_once(empty_database_url: str) -> None:
    first = await migrate(empty_database_url)
    second = await migrate(empty_database_url)
    names = tuple(migration.name for migration in load_migrations())
    assert (first.from_version, first.applied) == (0, names)
    assert (second.from_version, second.applied) == (len(names), ())
    await check_schema(empty_database_url)


async def test_a_fixture_gives_a_migrated_database(pool: Pool) -> None:
    async with pool.connection() as conn:
        row = await (await conn.execute("select count(*) from collection")).fetchone()
    assert row == (0,)
