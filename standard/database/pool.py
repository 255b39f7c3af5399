"""Connections to PostgreSQL: one bounded pool a process, errors of our own tree, timeouts that survive a pooler.

    async with open_pool(DatabaseConfig(url=...)) as pool:
        async with connection(pool) as conn:        # single statements, each its own transaction
            ...
        async with transaction(pool) as conn:       # several statements, all or nothing
            ...

Connections are in autocommit mode and return tuples; LangGraph's AsyncPostgresSaver takes the same pool. Behind a
pooler in transaction mode (PgBouncer and its kin, detected, see `_behind_pooler`) two statements may meet two server
sessions, so nothing is kept in the session there: no prepared statements, and the statement timeout is set inside each
transaction (`connection` then opens one). Cancelling a task that waits for a statement cancels the statement on the
server.
"""

from __future__ import annotations

import asyncio
import select
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import psycopg
import psycopg_pool
from pgvector.psycopg import register_vector_async
from psycopg import AsyncClientCursor, AsyncConnection, AsyncCursor
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from standard import spans
from standard.database.share import shared_server
from standard.database.spans import WAIT, SpanCursor, statement_span
from standard.domain.errors import DatabaseUnavailable, DeadlineExceeded, FailedPrecondition, Overloaded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """How to reach PostgreSQL and within which bounds. Times are in seconds.

    `url` None = the embedded server of `data_directory`. `max_waiting` callers may queue for a connection (0 = no
    bound), each `acquire_timeout` long. `statement_timeout` bounds every statement, 0 = none. `pooler` None = detect
    whether a pooler stands between; True where detection cannot see it.
    """

    url: str | None = field(default=None, repr=False)
    data_directory: Path | None = None
    min_size: int = 1
    max_size: int = 10
    max_waiting: int = 200
    acquire_timeout: float = 10.0
    connect_timeout: float = 10.0
    statement_timeout: float = 30.0
    application_name: str = "pointsman"
    pooler: bool | None = None


class Connection(AsyncConnection[TupleRow]):
    """A connection that knows whether a pooler stands behind it, and the statement timeout of its pool.

    `walled`: statements may be run as the role that row-level security holds to one tenant (see tenant_rows).
    """

    behind_pooler: bool = False
    walled: bool = False
    statement_timeout: float = 0.0


_SIGNS_OF_LIFE: Mapping[str, int] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How soon a host that vanished without a word is noticed: within a minute idle, 30 s where something was sent. What
the URL says of them wins. Without them a renewal of leases would wait for hours."""

Pool: TypeAlias = psycopg_pool.AsyncConnectionPool[Connection]


@asynccontextmanager
async def database_url(config: DatabaseConfig) -> AsyncIterator[str]:
    """Yield the URL to connect to; the embedded server, where it is the one, is held for as long as the block runs."""
    if config.url is not None:
        yield config.url
        return
    if config.data_directory is None:
        raise FailedPrecondition("neither a database URL nor a data directory for the embedded database is set")
    async with shared_server(config.data_directory) as url:
        yield url


@asynccontextmanager
async def open_pool(config: DatabaseConfig, *, wait: bool = True) -> AsyncIterator[Pool]:
    """Yield an open pool; close it, and give the embedded server up, at the end of the block.

    With `wait` the first `min_size` connections stand when the block begins, else DatabaseUnavailable is raised;
    without it the pool keeps trying in the background and callers wait for it.
    """
    async with database_url(config) as url:
        pool = make_pool(url, config)
        try:
            with translated_errors():
                await pool.open(wait=wait, timeout=config.connect_timeout)
            yield pool
        finally:
            await pool.close()


def make_pool(url: str, config: DatabaseConfig) -> Pool:
    """Return a pool that is not open yet; for those who cannot use `open_pool`'s block."""

    async def configure(conn: Connection) -> None:
        await _configure(conn, config)

    return psycopg_pool.AsyncConnectionPool(
        url,
        connection_class=Connection,
        kwargs={
            "autocommit": True,
            "application_name": config.application_name,
            "connect_timeout": max(1, round(config.connect_timeout)),
            "client_encoding": "utf8",
            **{key: value for key, value in _SIGNS_OF_LIFE.items() if key not in conninfo_to_dict(url)},
        },
        min_size=config.min_size,
        max_size=max(config.max_size, config.min_size),
        max_waiting=config.max_waiting,
        timeout=config.acquire_timeout,
        reconnect_timeout=5.0,
        reconnect_failed=_try_again,
        max_lifetime=3600.0,
        max_idle=600.0,
        configure=configure,
        check=_drop_if_closed,
        open=False,
        name=config.application_name,
    )


async def _try_again(pool: Pool) -> None:
    """Begin anew to connect where the pool gave up.

    By itself it would when the next caller comes; but callers who gave up waiting still count as waiting until there is
    a connection, and at `max_waiting` of them no other one is let in: the pool would be shut for good.
    """
    await pool.check()


async def _configure(conn: Connection, config: DatabaseConfig) -> None:
    conn.cursor_factory = SpanCursor
    conn.behind_pooler = await _behind_pooler(conn) if config.pooler is None else config.pooler
    conn.statement_timeout = config.statement_timeout
    if conn.behind_pooler:
        conn.prepare_threshold = None
    else:
        await conn.execute(
            "select set_config('statement_timeout', %s, false), set_config('timezone', 'UTC', false)",
            [_milliseconds(config.statement_timeout)],
        )
    try:
        await register_vector_async(conn)
    except psycopg.ProgrammingError as problem:
        if "not found" not in str(problem):  # no extension yet: the tables are not there either
            raise
    conn.walled = await _is_walled(conn)


async def _behind_pooler(conn: Connection) -> bool:
    """Tell whether another session answers than the one that greeted: poolers invent the greeting's process id."""
    row = await (await conn.execute("select pg_backend_pid()", prepare=False)).fetchone()
    return row is not None and row[0] != conn.info.backend_pid


_ENTER = "select set_config('role', 'pointsman_reader', true), set_config('pointsman.tenant', %s, true)"
_LEAVE = "select set_config('role', 'none', true)"
_IS_WALLED = """
select bool_and(row_security_active(name)) from unnest(array['document', 'chunk', 'sentence', 'posting']) name
"""


async def _is_walled(conn: Connection) -> bool:
    """Try it: no role, no right to take it, and tables without row security all mean no."""
    try:
        async with conn.transaction():
            await conn.execute(_ENTER, [""], prepare=False)
            row = await (await conn.execute(_IS_WALLED, prepare=False)).fetchone()
    except (psycopg.ProgrammingError, psycopg.DataError):
        return False
    return row is not None and row[0] is True


async def _drop_if_closed(conn: Connection) -> None:
    """Raise if the server closed an idle connection. Costs no round trip: a healthy idle socket is not readable."""
    poll = select.poll()
    poll.register(conn.fileno(), select.POLLIN)
    if poll.poll(0):  # a farewell, or a harmless notice: ask
        await conn.execute("", prepare=False)


@asynccontextmanager
async def connection(pool: Pool, *, statement_timeout: float | None = None) -> AsyncIterator[Connection]:
    """Yield a connection for single statements; a transaction is opened only where a timeout needs one.

    `statement_timeout` (seconds) overrides the pool's, downwards or upwards; 0 = none. Raises Overloaded when too many
    callers wait, DatabaseUnavailable when no connection comes free in time or the server is away, DeadlineExceeded when
    a statement runs out of time.
    """
    began = spans.clock()
    with translated_errors():
        async with pool.connection() as conn:
            spans.waited(WAIT, began)
            timeout = statement_timeout
            if timeout is None and conn.behind_pooler:
                timeout = conn.statement_timeout
            if timeout is None:
                yield conn
            else:
                async with conn.transaction():
                    await limit_statements(conn, timeout)
                    yield conn


@asynccontextmanager
async def transaction(pool: Pool, *, statement_timeout: float | None = None) -> AsyncIterator[Connection]:
    """Yield a connection inside a transaction that commits at the end of the block and rolls back on any exception.

    `statement_timeout` and errors as for `connection`.
    """
    began = spans.clock()
    with translated_errors():
        async with pool.connection() as conn:
            spans.waited(WAIT, began)
            async with conn.transaction():
                await _limited(conn, statement_timeout)
                yield conn


async def _limited(conn: Connection, statement_timeout: float | None) -> None:
    """Bound the statements of the transaction where they are not bounded by the session."""
    if statement_timeout is not None:
        await limit_statements(conn, statement_timeout)
    elif conn.behind_pooler:
        await limit_statements(conn, conn.statement_timeout)


async def tenant_rows(
    conn: Connection,
    tenant: str,
    statement: bytes,
    parameters: Mapping[str, object] | Sequence[object] = (),
    *,
    binary: bool = False,
) -> list[TupleRow]:
    """Run one statement that reads for a tenant, and return its rows: with no other tenant's among them.

    The second wall behind the conditions of the statement itself: where the database has it (`conn.walled`), the
    statement runs as a role that row-level security holds to this tenant. Role and tenant are set for the transaction
    alone, which outside of a transaction is this statement, and travel with it: one round trip, and nothing is left
    behind in a pooler's session.
    """
    if not conn.walled:
        return await _rows(conn, statement, parameters, binary=binary)
    if conn.behind_pooler or conn.info.transaction_status is not TransactionStatus.IDLE:
        async with conn.transaction():
            await conn.execute(_ENTER, [tenant])
            rows = await _rows(conn, statement, parameters, binary=binary)
            await conn.execute(_LEAVE)
            return rows
    above = spans.recording()
    if above is None:
        return await _walled_rows(conn, tenant, statement, parameters, binary=binary)
    with statement_span(above, statement, conn.info.dbname):
        return await _walled_rows(conn, tenant, statement, parameters, binary=binary)


async def _walled_rows(
    conn: Connection,
    tenant: str,
    statement: bytes,
    parameters: Mapping[str, object] | Sequence[object],
    *,
    binary: bool,
) -> list[TupleRow]:
    async with conn.pipeline():  # up to its synchronisation, which fetching makes, a pipeline is one transaction
        await conn.execute(_ENTER, [tenant])
        return await _rows(conn, statement, parameters, binary=binary)


async def _rows(
    conn: Connection, statement: bytes, parameters: Mapping[str, object] | Sequence[object], *, binary: bool
) -> list[TupleRow]:
    async with conn.cursor(binary=binary) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()


async def the_row(cursor: AsyncCursor[TupleRow]) -> TupleRow:
    """Return the one row of a statement that always has one."""
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("a statement that always returns a row returned none")
    return row


async def limit_statements(conn: AsyncConnection[TupleRow], seconds: float) -> None:
    """Bound each further statement of the open transaction; 0 = no bound. The setting ends with the transaction."""
    await conn.execute("select set_config('statement_timeout', %s, true)", [_milliseconds(seconds)])


async def connect_beside(
    pool: Pool, name: str, *, simple: bool = False, timeout_seconds: int = 10
) -> AsyncConnection[TupleRow]:
    """Open a connection beside the pool's, in autocommit and without prepared statements; whoever opens it closes it.

    `name` is shown in pg_stat_activity. `simple` speaks the simple protocol: in the extended one the last statement's
    portal keeps its snapshot while a transaction stays open. Raises psycopg's errors, see `translated_errors`.
    """
    url = pool.conninfo
    if not isinstance(url, str):
        raise TypeError("a pool of make_pool has a plain URL")
    return await AsyncConnection.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        cursor_factory=AsyncClientCursor if simple else AsyncCursor,
        application_name=name,
        connect_timeout=timeout_seconds,
    )


async def probe(pool: Pool, *, timeout_seconds: float = 2.0) -> float:
    """Ask the server for a sign of life and return the seconds it took; raises DatabaseUnavailable.

    Uses a connection of its own, so that a pool that is merely busy does not look like a dead database. Where that is
    refused, for want of a free one, the answer of a connection that stands counts as well: work goes on over those.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(timeout_seconds):
            try:
                conn = await connect_beside(pool, "pointsman-health")
            except psycopg.OperationalError:
                async with pool.connection(timeout=timeout_seconds / 2) as standing:
                    await standing.execute("select 1")
            else:
                async with conn:
                    await conn.execute("select 1")
    except (psycopg.Error, psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests, TimeoutError) as problem:
        raise DatabaseUnavailable(f"the database does not answer: {_first_line(problem)}") from problem
    return loop.time() - began


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn the driver's errors into ours. Errors in our own SQL stay what they are: they are bugs."""
    try:
        yield
    except psycopg_pool.TooManyRequests as problem:
        raise Overloaded("too many callers wait for a database connection", retry_after_seconds=1.0) from problem
    except psycopg_pool.PoolTimeout as problem:
        raise DatabaseUnavailable("no database connection came free in time", retry_after_seconds=1.0) from problem
    except psycopg_pool.PoolClosed as problem:
        raise DatabaseUnavailable("the database pool is closed") from problem
    except psycopg.errors.QueryCanceled as problem:
        raise DeadlineExceeded("a database statement ran out of time") from problem
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as problem:
        raise FailedPrecondition(
            f"the database lacks what this release needs ({_first_line(problem)}); run `pointsman migrate`"
        ) from problem
    except psycopg.errors.DiskFull as problem:
        raise DatabaseUnavailable(
            f"the database's disk is full ({_first_line(problem)}); what writes nothing goes on",
            retry_after_seconds=5.0,
        ) from problem
    except (psycopg.OperationalError, psycopg.InterfaceError) as problem:
        raise DatabaseUnavailable(f"the database is away: {_first_line(problem)}", retry_after_seconds=1.0) from problem


def _milliseconds(seconds: float) -> str:
    """Return the value of statement_timeout; anything above 0 stays above 0, since 0 means no bound."""
    return str(max(1, round(seconds * 1000)) if seconds > 0 else 0)


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
