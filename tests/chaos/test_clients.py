"""What clients do: come all at once, read nothing, leave in the middle. The rest go on, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import grpc
import pytest
import pytest_asyncio
from pointsman.client import Pointsman, question
from pointsman.v1 import gateway_pb2, gateway_pb2_grpc

from tests.chaos.conftest import GENERATED
from tests.chaos.gateway_process import TYPED, WHERE, Served, gateway, retry_seconds
from tests.chaos.survival import survives
from tests.support.model_server import Reply, always
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.model_server import ModelServer

pytestmark = pytest.mark.asyncio(loop_scope="session")
LONG = Reply(pieces=("The shed at Alder Wharf is red [S1]. ",) * 400, token_delay=0.01)
PATIENT = json.dumps({"methodConfig": [{"name": [{}]}]})
"""A service config without retries: what the server says is what is seen."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory, model: ModelServer) -> AsyncIterator[Served]:
    """A gateway with few places and a short queue."""
    room = {
        "SERVER__MAX_INFLIGHT": "8",
        "SERVER__MAX_QUEUED": "16",
        "SERVER__QUEUE_TIMEOUT_SECONDS": "0.5",
        "LLM__MAX_OUTPUT_TOKENS": "4096",
        "LLM__TIMEOUT_SECONDS": "20",
    }
    async with gateway(tmp_path_factory.mktemp("clients"), model=model, settings=room) as running:
        for _ in range(8):
            await running.client.answer(WHERE)
        yield running


async def without_retries(served: Served, count: int) -> list[grpc.aio.AioRpcError | gateway_pb2.AnswerResponse]:
    options = [("grpc.enable_retries", 0), ("grpc.service_config", PATIENT)]
    async with grpc.aio.insecure_channel(served.target, options=options) as channel:
        stub = gateway_pb2_grpc.GatewayServiceStub(channel)

        async def one() -> grpc.aio.AioRpcError | gateway_pb2.AnswerResponse:
            try:
                answer: gateway_pb2.AnswerResponse = await stub.Answer(
                    question(WHERE, route=gateway_pb2.ROUTE_STANDARD), timeout=20
                )
            except grpc.aio.AioRpcError as error:
                return error
            return answer

        return await asyncio.gather(*(one() for _ in range(count)))


async def left_after(client: Pointsman, events: int, *, words: bool) -> None:
    """Read some events of a stream, or some of its words, then leave."""
    seen = 0
    stream = client.stream(question(WHERE, route=gateway_pb2.ROUTE_STANDARD))
    async with contextlib.aclosing(stream):  # type: ignore[type-var]
        async for event in stream:
            seen += not words or event.WhichOneof("body") == "token"
            if seen >= events:
                return


async def cancel_storm(served: Served, count: int, *, at_once: int) -> Counter[str]:
    """Open `count` streams, at most `at_once` together, and leave each: half in the midst of their answers, after a few
    words of the model, half at any time before, after a few events or milliseconds.

    Returns how those were refused that were: code and words.
    """
    chance = random.Random(7)
    room = asyncio.Semaphore(at_once)
    refused: Counter[str] = Counter()

    async def one(events: int, seconds: float, *, words: bool) -> None:
        async with room:
            try:
                async with asyncio.timeout(10.0 if words else seconds):
                    await left_after(served.client, events, words=words)
            except TimeoutError:
                return
            except grpc.aio.AioRpcError as error:
                assert error.code() in TYPED, error  # noqa: PT017 - most streams raise nothing
                refused[f"{error.code().name}: {error.details()}"] += 1

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            words = number % 2 == 0
            group.create_task(one(chance.randint(1, 8), chance.uniform(0.002, 0.3), words=words))
    return refused


async def test_a_storm_is_answered_or_refused_with_advice_when_to_come_back(served: Served, model: ModelServer) -> None:
    async with survives(served, within_seconds=5, sockets=20):
        model.script = always(Reply("It is in the shed at Alder Wharf [S1].", first_token_delay=0.05))
        results = await without_retries(served, 300)
        errors = [result for result in results if isinstance(result, grpc.aio.AioRpcError)]
        assert 8 <= len(results) - len(errors) < 300
        assert {error.code() for error in errors} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        waits = [retry_seconds(error) for error in errors]
        assert all(wait is not None and 0 < wait <= 5 for wait in waits)
        model.script = always(GENERATED)


async def test_hundreds_of_cancelled_streams_leave_nothing_behind(served: Served, model: ModelServer) -> None:
    model.script = always(LONG)
    await cancel_storm(served, 50, at_once=8)
    model.script = always(GENERATED)
    async with survives(served, within_seconds=5, sockets=20):
        model.script = always(LONG)
        seen = len(model.requests)
        await cancel_storm(served, 300, at_once=24)
        assert len(model.requests) - seen >= 30  # of those that found a place, many were in the midst of their answers
        await served.is_idle()
        await until(lambda: all(request.client_gone or request.finished for request in model.requests), seconds=20.0)
        model.script = always(GENERATED)


@pytest.mark.slow
async def test_readers_that_read_nothing_hold_up_nobody(served: Served, model: ModelServer) -> None:
    async with survives(served, within_seconds=5, sockets=20):
        model.script = always(Reply(pieces=("The shed at Alder Wharf is red [S1]. ",) * 2000))
        address = urlsplit(served.http_url)
        body = json.dumps(
            {"model": "pointsman", "stream": True, "messages": [{"role": "user", "content": WHERE}]}
        ).encode()
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                connection = stack.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                await asyncio.to_thread(connection.connect, (address.hostname, address.port))
                connection.sendall(head + body)
            await asyncio.sleep(0.5)
            async with grpc.aio.insecure_channel(served.target) as channel:
                stub = gateway_pb2_grpc.GatewayServiceStub(channel)
                calls = [
                    stub.StreamAnswer(gateway_pb2.StreamAnswerRequest(request=question(WHERE)), timeout=30)
                    for _ in range(2)
                ]
                for call in calls:
                    await call.read()  # the first event, and no more
                model.script = always(GENERATED)
                assert await served.recovers(within_seconds=5) < 5
                for call in calls:
                    call.cancel()
