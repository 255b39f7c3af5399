"""Bring a database to the schema of this release.

Migrations are the files `migrations/NNNN_name.sql`, applied in order in one transaction under an advisory lock and
noted, with their checksum, in `schema_migration`. A file never changes once released.

A rolling update runs two releases over one database, so a release must work with the next one's schema: first expand
(add tables and nullable columns), and only a later release contracts (drops what nobody reads any more). The first line
of a file says so: `-- readable-by: N` names the oldest schema version whose code still works after it, N <= its own
number - 1 save for the first. Code that meets a newer database works with it as far as that line allows, and never
changes it.

LangGraph's checkpoint tables are made by its own setup, once a version of its package.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata, resources
from typing import TYPE_CHECKING

import psycopg
from psycopg import AsyncClientCursor, AsyncConnection
from psycopg.rows import TupleRow, dict_row

from standard.database.pool import translated_errors
from standard.domain.errors import Damaged, DatabaseUnavailable, FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

MINIMUM_PGVECTOR = (0, 8, 4)
MINIMUM_SERVER = 140000
_LOCK_KEY = 0x706F696E74736D  # "pointsm"
_LOCK_POLL_SECONDS = 0.1
_CHECKPOINTER = "langgraph-checkpoint-postgres"
_LEDGER = """
create table if not exists schema_migration (
    version     int primary key,
    name        text not null,
    checksum    text not null,
    readable_by int not null,
    applied_at  timestamptz not null default now()
);
create table if not exists component_version (
    component text primary key,
    version   text not null
);
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. `checksum` is the SHA-256 of its text; `readable_by` the oldest schema version that works after it."""

    version: int
    name: str
    sql: str
    checksum: str
    readable_by: int


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What `migrate` found and did: versions before and after, names of the files applied, warnings for people."""

    from_version: int
    to_version: int
    applied: tuple[str, ...]
    pgvector: str
    warnings: tuple[str, ...] = ()


def load_migrations() -> tuple[Migration, ...]:
    """Read the migrations of this release, in order. Raises Damaged where the files are not numbered 1, 2, 3 …"""
    found = []
    for file in (resources.files("standard.database") / "migrations").iterdir():
        name = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if name is None:
            continue
        sql = file.read_text(encoding="utf-8")
        readable = re.match(r"-- readable-by: (\d+)\n", sql)
        if readable is None:
            raise Damaged(f"migration {file.name} does not begin with `-- readable-by: N`")
        checksum = hashlib.sha256(sql.encode()).hexdigest()
        found.append(Migration(int(name[1]), file.name, sql, checksum, int(readable[1])))
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise Damaged("the migrations of this installation are incomplete; install pointsman again")
    return tuple(found)


async def migrate(
    url: str,
    *,
    migrations: Sequence[Migration] | None = None,
    allow_old_pgvector: bool = False,
    lock_timeout: float = 120.0,
) -> MigrationReport:
    """Apply what is missing and return what was done. Safe to run from many processes at once.

    `allow_old_pgvector` makes a pgvector below 0.8.4 a warning (bugs in older ones: overflow in index builds,
    corruption by vacuum, unreachable rows). Raises FailedPrecondition where the database is newer than this release, a
    file differs from what was applied, pgvector is missing or too old; DatabaseUnavailable where the server is away or
    another process holds the lock longer than `lock_timeout` seconds.
    """
    known = load_migrations() if migrations is None else tuple(migrations)
    with translated_errors():
        async with await _connect(url) as conn:
            pgvector, warnings = await _check_server(conn, allow_old_pgvector=allow_old_pgvector)
            before = await _applied(conn)
            _check_applied(before, known)
            if len(before) < len(known) or not await _has_extension(conn):
                async with _lock(conn, lock_timeout):
                    before = await _applied(conn)
                    _check_applied(before, known)
                    await _create_extension(conn)
                    await conn.execute(_LEDGER)
                    for migration in known[len(before) :]:
                        await _apply(conn, migration)
            await _set_up_checkpointer(conn, url, lock_timeout)
            warnings += await _raise_wall(conn, lock_timeout)
    applied = tuple(migration.name for migration in known[len(before) :])
    return MigrationReport(len(before), len(known), applied, pgvector, warnings)


async def check_schema(url: str, *, migrations: Sequence[Migration] | None = None) -> None:
    """Raise FailedPrecondition unless this release can work with the database as it is. Changes nothing.

    A newer database passes where its migrations say that this release can still read it.
    """
    known = load_migrations() if migrations is None else tuple(migrations)
    with translated_errors():
        async with await _connect(url) as conn:
            applied = await _applied(conn)
    if len(applied) < len(known):
        raise FailedPrecondition(
            f"the database has schema version {len(applied)}, this release needs {len(known)}; run `pointsman migrate`"
        )
    needed = max(row.readable_by for row in applied)
    if needed > len(known):
        raise FailedPrecondition(
            f"the database has schema version {len(applied)}, which releases before schema {needed} cannot work with; "
            f"this one is at {len(known)}: install a newer pointsman"
        )


@dataclass(frozen=True, slots=True)
class _Applied:
    version: int
    checksum: str
    readable_by: int


async def _connect(url: str) -> AsyncConnection[TupleRow]:
    # Client cursors speak the simple protocol. In the extended one the last statement's portal stays open, with its
    # snapshot, until the next; CREATE INDEX CONCURRENTLY would wait for the snapshot of the one that holds the lock.
    return await AsyncConnection.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        cursor_factory=AsyncClientCursor,
        application_name="pointsman-migrate",
        connect_timeout=10,
    )


async def _check_server(conn: AsyncConnection[TupleRow], *, allow_old_pgvector: bool) -> tuple[str, tuple[str, ...]]:
    if conn.info.server_version < MINIMUM_SERVER:
        raise FailedPrecondition(f"PostgreSQL {conn.info.server_version // 10000} is too old; 14 or newer is needed")
    cursor = await conn.execute(
        "select coalesce(installed_version, default_version), default_version"
        " from pg_available_extensions where name = 'vector'"
    )
    row = await cursor.fetchone()
    if row is None:
        raise FailedPrecondition(
            "this PostgreSQL server has no pgvector; install it there (https://github.com/pgvector/pgvector), "
            "or leave POINTSMAN_DATABASE__URL unset to use the embedded server, which has it"
        )
    version, available = str(row[0]), str(row[1])
    if parse_version(version) >= MINIMUM_PGVECTOR:
        return version, ()
    needed = ".".join(map(str, MINIMUM_PGVECTOR))
    way_out = (
        "run `alter extension vector update`"
        if parse_version(available) >= MINIMUM_PGVECTOR
        else f"install pgvector {needed} or newer on the server"
    )
    problem = f"pgvector {version} has bugs that damage indexes; {way_out}"
    if not allow_old_pgvector:
        raise FailedPrecondition(f"{problem}, or set POINTSMAN_DATABASE__ACCEPT_OLD_PGVECTOR=true to go on regardless")
    return version, (problem,)


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers a version begins with: "0.8.6" is (0, 8, 6), "0.9.0-rc1" is (0, 9, 0)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


async def _has_extension(conn: AsyncConnection[TupleRow]) -> bool:
    cursor = await conn.execute("select 1 from pg_extension where extname = 'vector'")
    return await cursor.fetchone() is not None


async def _create_extension(conn: AsyncConnection[TupleRow]) -> None:
    if await _has_extension(conn):
        return
    try:
        async with conn.transaction():
            await conn.execute("create extension if not exists vector")
    except psycopg.errors.InsufficientPrivilege as problem:
        raise FailedPrecondition(
            "this role may not create extensions; have an administrator run `create extension vector` in the database"
        ) from problem


async def _applied(conn: AsyncConnection[TupleRow]) -> tuple[_Applied, ...]:
    cursor = await conn.execute("select to_regclass('schema_migration') is not null")
    row = await cursor.fetchone()
    if row is None or not row[0]:
        return ()
    cursor = await conn.execute("select version, checksum, readable_by from schema_migration order by version")
    return tuple(_Applied(*row) for row in await cursor.fetchall())


def _check_applied(applied: Sequence[_Applied], known: Sequence[Migration]) -> None:
    for row, migration in zip(applied, known, strict=False):
        if row.version != migration.version or row.checksum != migration.checksum:
            raise FailedPrecondition(
                f"migration {migration.name} differs from the one this database was made with; "
                f"install the release that made it, or start with an empty database"
            )
    if len(applied) > len(known):
        readable = max(row.readable_by for row in applied) <= len(known)
        raise FailedPrecondition(
            f"the database has schema version {len(applied)}, newer than this release's {len(known)}: "
            f"install a newer pointsman to migrate"
            + ("; this one can still serve from it without migrating" if readable else "")
        )


async def _apply(conn: AsyncConnection[TupleRow], migration: Migration) -> None:
    await conn.execute(migration.sql.encode())
    await conn.execute(
        "insert into schema_migration (version, name, checksum, readable_by) values (%s, %s, %s, %s)",
        [migration.version, migration.name, migration.checksum, migration.readable_by],
    )


@asynccontextmanager
async def _lock(conn: AsyncConnection[TupleRow], timeout_seconds: float) -> AsyncIterator[None]:
    """Hold the migration lock in one transaction.

    It is asked for again and again rather than waited for: a waiting statement holds a snapshot, and the holder's
    CREATE INDEX CONCURRENTLY would wait for that snapshot, each for the other. Bound to the transaction, so that a
    pooler in transaction mode cannot separate us from it.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while True:
        async with conn.transaction():
            cursor = await conn.execute("select pg_try_advisory_xact_lock(%s)", [_LOCK_KEY])
            row = await cursor.fetchone()
            if row is not None and row[0]:
                await conn.execute("select set_config('idle_in_transaction_session_timeout', '0', true)")
                yield
                return
        if loop.time() >= deadline:
            raise DatabaseUnavailable("another process has been migrating this database for too long; try again")
        await asyncio.sleep(_LOCK_POLL_SECONDS)


async def _raise_wall(conn: AsyncConnection[TupleRow], lock_timeout: float) -> tuple[str, ...]:
    """Put row-level security up where it is not yet, and say what stands in its way. See migration 3."""
    if await (await conn.execute("select to_regproc('pointsman_raise_wall')")).fetchone() == (None,):
        return ()
    if await wall_problem(conn) == "":
        return ()
    async with _lock(conn, lock_timeout):
        cursor = await conn.execute("select pointsman_raise_wall()")
        row = await cursor.fetchone()
    problem = str(row[0]) if row is not None else ""
    return (f"row-level security is not in force: {problem}",) if problem else ()


async def wall_problem(conn: AsyncConnection[TupleRow]) -> str:
    """Why row-level security does not stand behind this connection's reads; "" where it does."""
    try:
        async with conn.transaction():
            await conn.execute("select set_config('role', 'pointsman_reader', true)")
            cursor = await conn.execute(
                "select string_agg(name, ', ') from unnest(array['document', 'chunk', 'sentence', 'posting']) name"
                " where not row_security_active(name)"
            )
            row = await cursor.fetchone()
    except psycopg.ProgrammingError as problem:
        return (str(problem).strip() or type(problem).__name__).splitlines()[0]
    except psycopg.DataError as problem:  # set_config's word for a role that is not there
        return (str(problem).strip() or type(problem).__name__).splitlines()[0]
    return f"no row-level security on {row[0]}" if row is not None and row[0] else ""


async def _set_up_checkpointer(conn: AsyncConnection[TupleRow], url: str, lock_timeout: float) -> None:
    """Make LangGraph's tables. Its setup runs on a connection of its own, because it builds indexes concurrently."""
    installed = metadata.version(_CHECKPOINTER)
    query = "select 1 from component_version where component = %s and version = %s"
    if await (await conn.execute(query, [_CHECKPOINTER, installed])).fetchone() is not None:
        return
    async with _lock(conn, lock_timeout):
        if await (await conn.execute(query, [_CHECKPOINTER, installed])).fetchone() is not None:
            return
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        connecting = AsyncConnection.connect(
            url, autocommit=True, prepare_threshold=None, row_factory=dict_row, application_name="pointsman-migrate"
        )
        async with await connecting as own:
            await AsyncPostgresSaver(own).setup()
        await conn.execute(
            "insert into component_version (component, version) values (%s, %s)"
            " on conflict (component) do update set version = excluded.version",
            [_CHECKPOINTER, installed],
        )
