"""The client's patience: limits of time, cancellation, calls at once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from standard.domain.errors import LlmUnavailable, Overloaded
from tests.support.llm_rig import asking, both_ways, failed, outcome, rig, streamed, until_gone
from tests.support.model_server import (
    Behaviour,
    Failure,
    Hang,
    Recorded,
    Reply,
    always,
)

# --- time -------------------------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("hang", [Hang(), Hang(headers=True)], ids=["silent", "headers"])
async def test_a_server_that_hangs_is_a_timeout_at_the_deadline(hang: Hang, stream: bool) -> None:
    async with rig(always(hang)) as r:
        loop = asyncio.get_running_loop()
        started = loop.time()
        error = await failed(r.llm, asking(timeout_seconds=0.3), stream=stream)
        assert error.kind == "timeout"
        assert 0.25 < loop.time() - started < 1
        await until_gone(r.server.requests[0])


@pytest.mark.parametrize("late", [Hang(), Hang(headers=True), Reply("Forty.", first_token_delay=10)])
async def test_the_first_token_has_its_own_limit(late: Hang | Reply) -> None:
    async with rig(always(late), first_token_seconds=0.2) as r:
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert (await failed(r.llm, asking(timeout_seconds=30), stream=True)).kind == "timeout"
        assert loop.time() - started < 1


@pytest.mark.parametrize("ping", [0, 0.05], ids=["silent", "pinging"])
async def test_a_stream_that_stalls_is_cut(ping: float) -> None:
    stalling = Reply(pieces=("Forty", " knots", "."), stall_after=2, ping=ping)
    async with rig([stalling], idle_seconds=0.2, first_token_seconds=5) as r:
        loop = asyncio.get_running_loop()
        started = loop.time()
        pieces, completion = await streamed(r.llm, asking(timeout_seconds=30))
        assert loop.time() - started < 1
        assert "".join(pieces) == "Forty knots"
        assert completion.finish_reason == "cut"
        assert r.observer.failed == ["timeout"]
        await until_gone(r.server.requests[0])


async def test_a_slow_but_steady_stream_is_not_cut() -> None:
    async with rig([Reply(pieces=("a", "b", "c", "d"), token_delay=0.15)], idle_seconds=0.4) as r:
        assert (await streamed(r.llm, asking()))[1].text == "abcd"


async def test_the_deadline_ends_a_long_stream_with_what_there_is() -> None:
    async with rig([Reply(pieces=tuple("abcdefghij" * 10), token_delay=0.05)]) as r:
        _, completion = await streamed(r.llm, asking(timeout_seconds=0.4))
        assert completion.finish_reason == "cut"
        assert completion.text.startswith("abc")


async def test_a_slow_reader_is_not_taken_for_a_stalled_server() -> None:
    async with rig([Reply(pieces=("a", "b", "c"))], idle_seconds=0.1) as r:
        pieces = []
        async for item in r.llm.stream(asking()):
            pieces.append(item)
            await asyncio.sleep(0.2)
        assert pieces[:3] == ["a", "b", "c"]


# --- cancellation -----------------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize(
    "behaviour",
    [Hang(), Hang(headers=True), Reply(pieces=("a",) * 1000, token_delay=0.05), Failure(503, retry_after=3)],
    ids=["silent", "headers", "streaming", "backing off"],
)
async def test_cancelling_a_call_closes_its_socket_within_100_ms(behaviour: Behaviour, stream: bool) -> None:
    async with rig(always(behaviour)) as r:
        task = asyncio.create_task(outcome(r.llm, asking(timeout_seconds=30), stream=stream))
        request = await r.server.arrived(1)
        await asyncio.sleep(0.15)
        cancelled = asyncio.get_running_loop().time()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() - cancelled < 0.1
        if not isinstance(behaviour, Failure):
            assert await until_gone(request) - cancelled < 0.1
        await asyncio.sleep(0.05)
        assert len(r.server.requests) == 1
        assert r.observer.calls[0].error_kind == "cancelled"


async def test_a_stream_that_is_left_early_closes_its_socket_and_its_place() -> None:
    async with rig(always(Reply(pieces=("a",) * 1000, token_delay=0.02)), max_concurrency=1, max_waiting=0) as r:
        for number in range(2):
            async with contextlib.aclosing(r.llm.stream(asking())) as stream:
                async for _ in stream:
                    break
            left = asyncio.get_running_loop().time()
            assert await until_gone(r.server.requests[number]) - left < 0.1
        assert [call.error_kind for call in r.observer.calls] == ["cancelled"] * 2
        assert all(call.usage.input_tokens > 0 for call in r.observer.calls), "what was read is still paid for"


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_no_more_calls_run_at_once_than_allowed_and_no_more_wait() -> None:
    running = 0
    most = 0

    async def slowly(request: Recorded) -> Reply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.2)
        running -= 1
        return Reply("Forty.")

    async with rig(slowly, max_concurrency=2, max_waiting=3) as r:
        results = await asyncio.gather(*(r.llm.complete(asking()) for _ in range(7)), return_exceptions=True)
        refused = [result for result in results if isinstance(result, BaseException)]
        assert len(refused) == 2
        assert all(isinstance(error, Overloaded) and isinstance(error, LlmUnavailable) for error in refused)
        assert all(isinstance(error, Overloaded) and error.grpc_code == "RESOURCE_EXHAUSTED" for error in refused)
        assert most == 2
        assert (await r.llm.complete(asking())).text == "Forty."


async def test_waiting_for_a_place_counts_as_time() -> None:
    async with rig(always(Hang()), max_concurrency=1) as r:
        first = asyncio.create_task(failed(r.llm, asking(timeout_seconds=0.6), stream=False))
        await r.server.arrived(1)
        error = await failed(r.llm, asking(timeout_seconds=0.2), stream=True)
        assert error.kind == "timeout"
        assert len(r.server.requests) == 1
        await first


async def test_fifty_streams_at_once_do_not_mix() -> None:
    def echo(request: Recorded) -> Reply:
        return Reply(request.messages[-1]["content"], token_delay=0.001)

    async with rig(echo) as r:
        texts = [f"answer number {number} of many" for number in range(50)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(streamed(r.llm, asking(text))) for text in texts]
        assert [task.result()[1].text for task in tasks] == texts
