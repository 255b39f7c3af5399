"""A database that hangs for longer than the pool tries, with as many callers as may wait: it is found again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from standard.database.pool import DatabaseConfig, connection, open_pool
from standard.domain.errors import DatabaseUnavailable, Overloaded
from tests.support.hanging_database import passage_to
from tests.support.waiting import until

if TYPE_CHECKING:
    from standard.database.pool import Pool

WAITING = 3
pytestmark = pytest.mark.slow


async def test_callers_who_gave_up_waiting_do_not_shut_the_pool_for_good(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with passage_to(database_url) as passage:
        config = DatabaseConfig(
            url=passage.url, max_size=1, max_waiting=WAITING, acquire_timeout=0.1, connect_timeout=1.0
        )
        async with open_pool(config) as pool:
            passage.goes_on.clear()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), connection(pool) as conn:
                    await conn.execute("select 1")
            for _ in range(WAITING):
                with pytest.raises(DatabaseUnavailable):
                    async with connection(pool):
                        pass
            await until(lambda: "reconnection attempt in pool 'pointsman' failed" in caplog.text, seconds=30)
            with pytest.raises(Overloaded):
                async with connection(pool):
                    pass
            passage.goes_on.set()
            async with asyncio.timeout(10):
                while not await answers(pool):  # noqa: ASYNC110 - what is waited for has no event to offer
                    await asyncio.sleep(0.1)


async def answers(pool: Pool) -> bool:
    """Whether a statement gets through."""
    try:
        async with connection(pool) as conn:
            await conn.execute("select 1")
    except (Overloaded, DatabaseUnavailable):
        return False
    return True
