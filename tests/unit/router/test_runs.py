"""A run has one producer and any number of readers."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.runs import LiveRun, RunRegistry
from standard.domain.event import TokenEmitted


def run_of(count: int = 0) -> LiveRun:
    run = LiveRun("default", "r1", "hash")
    for number in range(count):
        run.append(TokenEmitted(str(number)), "")
    return run


async def read_all(run: LiveRun, after: int = 0) -> list[int]:
    return [event.sequence async for event in run.read(after)]


async def test_every_reader_sees_every_event_in_order() -> None:
    run = run_of()
    readers = [asyncio.create_task(read_all(run)) for _ in range(5)]
    for number in range(50):
        run.append(TokenEmitted(str(number)), "")
        if number % 7 == 0:
            await asyncio.sleep(0)
    run.finish()
    assert await asyncio.gather(*readers) == [list(range(1, 51))] * 5


@given(st.integers(0, 20), st.integers(-5, 30))
def test_a_late_reader_gets_exactly_what_follows(count: int, after: int) -> None:
    run = run_of(count)
    run.finish()
    assert asyncio.run(read_all(run, after)) == list(range(max(after, 0) + 1, count + 1))


async def test_an_error_comes_after_the_events_there_are() -> None:
    run = run_of(2)
    run.finish(ValueError("broken"))
    reading = run.read()
    assert [(await anext(reading)).sequence, (await anext(reading)).sequence] == [1, 2]
    with pytest.raises(ValueError, match="broken"):
        await anext(reading)


async def test_a_held_event_is_recordable_but_unseen_until_the_end() -> None:
    run = run_of(1)
    run.hold(TokenEmitted("last"), "")
    assert [event.sequence for event in run.recordable()] == [1, 2]
    assert len(run.events) == 1
    run.finish()
    assert await read_all(run) == [1, 2]


async def test_a_held_event_is_dropped_when_the_run_fails() -> None:
    run = run_of(1)
    run.hold(TokenEmitted("last"), "")
    run.finish(ValueError("the journal is away"))
    assert len(run.events) == 1


def test_the_registry_forgets_what_ended() -> None:
    registry = RunRegistry()
    run = run_of()
    registry.add(run)
    assert registry.get("default", "r1") is run
    assert registry.get("other", "r1") is None
    registry.remove(run)
    assert len(registry) == 0
