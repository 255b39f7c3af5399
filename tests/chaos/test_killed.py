"""The gateway is killed with -9 in the midst of its runs: what was answered stays, what was begun is answered anew."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pointsman.client import new_request_id, question
from pointsman.v1 import gateway_pb2

from tests.chaos.conftest import GENERATED
from tests.chaos.gateway_process import WHERE, code_of, gateway, stop
from tests.chaos.survival import NOT_SERVING, SERVING, Fault
from tests.support.model_server import ModelServer, Reply, always

if TYPE_CHECKING:
    from pathlib import Path


def ask(request_id: str, route: gateway_pb2.Route.ValueType) -> gateway_pb2.AnswerRequest:
    return question(WHERE, route=route, request_id=request_id)


async def test_answers_given_are_given_again_and_runs_begun_are_taken_over(tmp_path: Path) -> None:
    standard, agentic = gateway_pb2.ROUTE_STANDARD, gateway_pb2.ROUTE_AGENTIC
    async with ModelServer(always(GENERATED)) as model:
        begun = {new_request_id(): route for route in (standard, agentic) for _ in range(6)}
        async with gateway(tmp_path, model=model) as first:
            kept = {}
            for route in (standard, agentic):
                request_id = new_request_id()
                kept[request_id] = (route, await first.client.answer(ask(request_id, route)))
            arrivals = Fault(first)
            await arrivals.ingest(2)
            model.script = always(Reply("It is in the shed at Alder Wharf [S1].", token_delay=0.5))
            calls = [
                asyncio.create_task(code_of(first.client.answer(ask(*item), timeout_seconds=20)))
                for item in begun.items()
            ]
            await model.arrived(len(model.requests) + 4, within_seconds=20)
            first.process.kill()
            await first.process.wait()
            assert {(await call) for call in calls} == {grpc.StatusCode.UNAVAILABLE}
            assert json.loads((first.data / "server.json").read_text())["pid"] == first.process.pid

        model.script = always(GENERATED)
        async with gateway(tmp_path, model=model, filled=False) as second:
            for request_id, (route, answer) in kept.items():
                assert await second.client.answer(ask(request_id, route)) == answer
            async with asyncio.TaskGroup() as group:
                # Leases of two seconds run out meanwhile: whoever asks waits for it.
                again = [
                    group.create_task(second.client.answer(ask(*item), timeout_seconds=30)) for item in begun.items()
                ]
            for call in again:
                assert "shed at Alder Wharf" in call.result().answer
            for request_id, call in zip(begun, again, strict=True):
                assert await second.client.answer(ask(request_id, begun[request_id])) == call.result()
            arrivals.served = second
            assert len(arrivals.acknowledged) == 2
            await arrivals.is_whole()
            assert await second.health() == SERVING
            await second.is_idle()  # no run of the one that died is held


@pytest.mark.slow
async def test_a_gateway_told_to_stop_says_so_finishes_what_it_can_and_leaves_the_rest(tmp_path: Path) -> None:
    """Its grace is five seconds: one answer takes two, the other longer than it may."""
    words = ("It is in the shed at Alder Wharf [S1]. ",)
    async with ModelServer(always(GENERATED)) as model:
        async with gateway(tmp_path, model=model) as first:
            short, long = new_request_id(), new_request_id()
            calls = []
            async with grpc.aio.insecure_channel(first.target) as channel:
                watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
                assert (await watch.read()).status == SERVING
                replies = iter(Reply(pieces=words * count, token_delay=0.1) for count in (20, 400))
                model.script = lambda _: next(replies)
                for request_id in (short, long):
                    asked = first.client.answer(ask(request_id, gateway_pb2.ROUTE_STANDARD), timeout_seconds=20)
                    calls.append(asyncio.create_task(code_of(asked)))
                    await model.arrived(len(model.requests) + 1)
                stopping = asyncio.create_task(stop(first.process))
                async with asyncio.timeout(2):
                    assert (await watch.read()).status == NOT_SERVING
                assert await calls[0] is grpc.StatusCode.OK
                assert await calls[1] is grpc.StatusCode.UNAVAILABLE
                assert await stopping == 0
                watch.cancel()
        model.script = always(GENERATED)
        async with gateway(tmp_path, model=model, filled=False) as second:
            seen = len(model.requests)
            assert "shed at Alder Wharf" in (await second.client.answer(ask(short, gateway_pb2.ROUTE_STANDARD))).answer
            assert len(model.requests) == seen  # given again, not made again
            assert "shed at Alder Wharf" in (await second.client.answer(ask(long, gateway_pb2.ROUTE_STANDARD))).answer


@pytest.mark.slow
async def test_a_second_gateway_on_the_data_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with gateway(tmp_path) as first:
        with pytest.raises(AssertionError, match="another server already runs"):
            async with gateway(tmp_path):
                pass
        assert (await first.client.answer(WHERE)).answer
