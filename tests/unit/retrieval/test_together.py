"""Several coroutines at once, failing as one of them does."""

from __future__ import annotations

import asyncio

import pytest

from standard.domain.errors import NotFound
from standard.retrieval.together import all_of, three_of


async def later(value: int, seconds: float = 0.0) -> int:
    await asyncio.sleep(seconds)
    return value


async def test_results_come_in_order_whoever_is_first() -> None:
    assert await all_of([later(1, 0.02), later(2), later(3, 0.01)]) == [1, 2, 3]
    assert await three_of(later(1, 0.01), later(2), later(3)) == (1, 2, 3)
    assert await all_of([]) == []


async def test_a_failure_is_raised_as_it_is_and_ends_the_others() -> None:
    ended = asyncio.Event()

    async def fails() -> int:
        await asyncio.sleep(0)
        raise NotFound("gone")

    async def waits() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return 0

    with pytest.raises(NotFound, match="gone"):
        await all_of([waits(), fails()])
    assert ended.is_set()
    ended.clear()
    with pytest.raises(NotFound, match="gone"):
        await three_of(waits(), fails(), later(1))
    assert ended.is_set()


async def test_cancelling_the_caller_cancels_the_work() -> None:
    ended = asyncio.Event()

    async def waits() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return 0

    task = asyncio.create_task(all_of([waits(), waits()]))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
