"""The gateway is killed with -9 in the midst of its runs: what was answered stays, what was begun is answered anew."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import grpc
import pytest
from pointsman.client import new_request_id, question
from pointsman.v1 import gateway_pb2

from tests.chaos.conftest import GENERATED
from tests.chaos.gateway_process import WHERE, code_of, gateway
from tests.chaos.survival import SERVING, Fault
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
async def test_a_second_gateway_on_the_data_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with gateway(tmp_path) as first:
        with pytest.raises(AssertionError, match="another server already runs"):
            async with gateway(tmp_path):
                pass
        assert (await first.client.answer(WHERE)).answer
