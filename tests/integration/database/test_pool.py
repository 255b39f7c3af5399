"""The pool over a real PostgreSQL: bounds, timeouts, errors, cancellation, and a pooler in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import psycopg
import pytest
from pgvector import HalfVector

from standard.database.pool import DatabaseConfig, connection, limit_statements, open_pool, probe, transaction
from standard.domain.errors import (
    DatabaseUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    Overloaded,
    PointsmanError,
)
from tests.support.transaction_pooler import transaction_pooler

if TYPE_CHECKING:
    from standard.database.pool import Connection, Pool


RUNNING = "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'"


async def until(conn: Connection, query: str, wanted: object) -> None:
    """Wait until a query gives a value."""
    async with asyncio.timeout(10):
        while await value(conn, query) != wanted:  # noqa: ASYNC110 - the event is in another process
            await asyncio.sleep(0.01)


async def value(conn: Connection, query: str) -> object:
    row = await (await conn.execute(query.encode())).fetchone()
    assert row is not None
    return row[0]


async def test_connections_are_in_utc_with_vectors_and_a_name(pool: Pool) -> None:
    async with connection(pool) as conn:
        assert await value(conn, "show timezone") == "UTC"
        assert await value(conn, "show application_name") == "pointsman"
        assert await value(conn, "show statement_timeout") == "30s"
        row = await (await conn.execute("select %s::halfvec", [HalfVector([1.0, 2.0])])).fetchone()
        assert row is not None
        assert np.allclose(row[0].to_numpy(), [1.0, 2.0])


async def test_a_statement_that_takes_too_long_is_a_deadline(database_url: str) -> None:
    async with open_pool(DatabaseConfig(url=database_url, statement_timeout=0.1)) as pool:
        with pytest.raises(DeadlineExceeded):
            async with connection(pool) as conn:
                await conn.execute("select pg_sleep(5)")
        async with connection(pool, statement_timeout=5) as conn:
            await conn.execute("select pg_sleep(0.2)")
        async with connection(pool) as conn:
            assert await value(conn, "show statement_timeout") == "100ms", "the override ended with its block"
        with pytest.raises(DeadlineExceeded):
            async with transaction(pool, statement_timeout=0.05) as conn:
                await conn.execute("select pg_sleep(5)")
        async with transaction(pool) as conn:
            await limit_statements(conn, 0)
            assert await value(conn, "show statement_timeout") == "0"


async def test_a_transaction_is_all_or_nothing(pool: Pool) -> None:
    async with transaction(pool) as conn:
        await conn.execute("create table t (n int)")

    async def fail_half_way() -> None:
        async with transaction(pool) as conn:
            await conn.execute("insert into t values (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_half_way()
    async with connection(pool) as conn:
        assert await value(conn, "select count(*) from t") == 0


async def test_more_callers_than_may_wait_are_turned_away(database_url: str) -> None:
    config = DatabaseConfig(url=database_url, max_size=1, max_waiting=1, acquire_timeout=5)
    async with open_pool(config) as pool, connection(pool), asyncio.TaskGroup() as group:

        async def wait() -> None:
            async with connection(pool):
                pass

        waiting = group.create_task(wait())
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded) as refused:
            await wait()
        assert refused.value.retry_after_seconds is not None
        waiting.cancel()


async def test_no_free_connection_in_time_is_unavailable_and_the_probe_still_answers(database_url: str) -> None:
    config = DatabaseConfig(url=database_url, max_size=1, acquire_timeout=0.1)
    async with open_pool(config) as pool, connection(pool):
        with pytest.raises(DatabaseUnavailable):
            async with connection(pool):
                pass
        assert await probe(pool) < 2, "a busy pool is no dead database"


async def test_a_host_that_vanished_is_noticed_unless_the_url_says_otherwise(database_url: str) -> None:
    separator = "&" if "?" in database_url else "?"
    url = f"{database_url}{separator}keepalives_idle=7"
    async with open_pool(DatabaseConfig(url=url)) as pool, connection(pool) as conn:
        told = conn.info.get_parameters()
    assert (told["keepalives_idle"], told["keepalives_interval"], told["tcp_user_timeout"]) == ("7", "10", "30000")


async def test_cancelling_a_task_cancels_its_statement_on_the_server(pool: Pool) -> None:
    async def sleep() -> None:
        async with connection(pool) as conn:
            await conn.execute("select pg_sleep(60)")

    task = asyncio.create_task(sleep())
    async with connection(pool) as conn:
        await until(conn, RUNNING, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(conn, RUNNING, 0)


async def test_idle_connections_that_the_server_closed_are_replaced_unnoticed(pool: Pool) -> None:
    async with connection(pool) as conn:
        own = await value(conn, "select pg_backend_pid()")
        async with await psycopg.AsyncConnection.connect(str(pool.conninfo), autocommit=True) as other:
            await other.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
                " and datname = current_database() and pid <> %s",
                [own],
            )
    async with await psycopg.AsyncConnection.connect(str(pool.conninfo), autocommit=True) as other:
        await other.execute("select pg_terminate_backend(%s)", [own])
    await asyncio.sleep(0.1)
    for _ in range(5):
        async with connection(pool) as conn:
            assert await value(conn, "select 1") == 1


async def test_losing_the_connection_in_a_statement_is_unavailable(pool: Pool) -> None:
    with pytest.raises(DatabaseUnavailable):
        async with connection(pool) as conn:
            await conn.execute("select pg_terminate_backend(pg_backend_pid())")


async def test_a_server_that_is_not_there_is_unavailable_in_time() -> None:
    config = DatabaseConfig(url="postgresql://x@127.0.0.1:1/x", connect_timeout=1)
    with pytest.raises(DatabaseUnavailable):
        async with open_pool(config):
            pass


async def test_a_database_that_was_not_migrated_says_what_to_run(empty_database_url: str) -> None:
    async with open_pool(DatabaseConfig(url=empty_database_url)) as pool:
        with pytest.raises(FailedPrecondition, match="pointsman migrate"):
            async with connection(pool) as conn:
                await conn.execute("select * from collection")


async def test_neither_url_nor_directory_is_said_plainly() -> None:
    with pytest.raises(PointsmanError, match="neither a database URL nor a data directory"):
        async with open_pool(DatabaseConfig()):
            pass


async def test_behind_a_pooler_nothing_depends_on_the_session(database_url: str) -> None:
    async with transaction_pooler(database_url) as (url, pooler):
        async with open_pool(DatabaseConfig(url=url, statement_timeout=0.2, max_size=2)) as pool:
            sessions = set()
            for number in range(20):
                async with connection(pool) as conn:
                    assert conn.behind_pooler
                    assert conn.prepare_threshold is None
                    cursor = await conn.execute("select pg_backend_pid(), %s::int", [number])
                    row = await cursor.fetchone()
                    assert row is not None
                    assert row[1] == number
                    sessions.add(row[0])
                    assert await value(conn, "show statement_timeout") == "200ms", "each transaction sets it anew"
            assert len(sessions) == 3
            with pytest.raises(DeadlineExceeded):
                async with connection(pool) as conn:
                    await conn.execute("select pg_sleep(5)")
            async with transaction(pool) as conn:
                assert await value(conn, "show statement_timeout") == "200ms"
        assert pooler.transactions > 20
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None) as bare:
            for _ in range(3):
                assert await value(bare, "show statement_timeout") == "0", "no session keeps our settings"  # type: ignore[arg-type]


async def test_a_task_cancelled_behind_a_pooler_cancels_its_statement_too(database_url: str, pool: Pool) -> None:
    async with transaction_pooler(database_url) as (url, _), open_pool(DatabaseConfig(url=url)) as pooled:

        async def sleep() -> None:
            async with connection(pooled) as conn:
                await conn.execute("select pg_sleep(60)")

        task = asyncio.create_task(sleep())
        async with connection(pool) as conn:
            await until(conn, RUNNING, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(conn, RUNNING, 0)
