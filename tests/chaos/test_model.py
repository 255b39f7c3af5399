"""The model fails in every way there is: the answer is extractive and says so, and the next one is generated again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pointsman.client import question
from pointsman.v1 import gateway_pb2

from tests.chaos.conftest import GENERATED
from tests.chaos.gateway_process import WHERE
from tests.chaos.survival import survives
from tests.support.model_server import Failure, Hang, Raw, Reply, always

if TYPE_CHECKING:
    from tests.chaos.gateway_process import Served
    from tests.support.model_server import Behaviour, ModelServer

pytestmark = pytest.mark.asyncio(loop_scope="session")
FAULTS: dict[str, Behaviour] = {
    "429": Failure(429, "slow down", retry_after=0.1),
    "500": Failure(500),
    "hung": Hang(),
    "hung after its head": Hang(headers=True),
    "garbage": Raw(),
    "garbage events": Raw(b"data: {{{\n\ndata: [DONE]\n\n", "text/event-stream"),
    "cut before a word": Reply("It is in the shed.", cut_after=0),
}
_EVERY_TIME = ("429",)


async def answered(served: Served, count: int) -> list[gateway_pb2.AnswerResponse]:
    async with asyncio.TaskGroup() as group:
        request = [question(WHERE, route=gateway_pb2.ROUTE_STANDARD) for _ in range(count)]
        calls = [group.create_task(served.client.answer(one, timeout_seconds=15)) for one in request]
    return [call.result() for call in calls]


async def generates_again(served: Served, model: ModelServer, *, within_seconds: float = 20.0) -> None:
    model.script = always(GENERATED)
    loop = asyncio.get_running_loop()
    until = loop.time() + within_seconds
    while (await answered(served, 1))[0].answer_source != gateway_pb2.ANSWER_SOURCE_GENERATED:
        assert loop.time() < until
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    "fault", [name if name in _EVERY_TIME else pytest.param(name, marks=pytest.mark.slow) for name in FAULTS], ids=str
)
async def test_answers_go_on_without_the_model(served: Served, model: ModelServer, fault: str) -> None:
    async with survives(served, sockets=20):
        model.script = always(FAULTS[fault])
        for answer in await answered(served, 6):
            assert answer.answer_source == gateway_pb2.ANSWER_SOURCE_EXTRACTIVE
            assert "shed at Alder Wharf" in answer.answer
            assert answer.notices
        await generates_again(served, model)


@pytest.mark.parametrize(
    "fault",
    [pytest.param({"cut_after": 4}, id="cut"), pytest.param({"stall_after": 4}, id="silent", marks=pytest.mark.slow)],
)
async def test_an_answer_that_breaks_off_is_told_as_such(
    served: Served, model: ModelServer, fault: dict[str, int]
) -> None:
    async with survives(served, sockets=20):
        model.script = always(Reply("It is in the shed at Alder Wharf [S1]. It is red [S1].", **fault))  # type: ignore[arg-type]
        for answer in await answered(served, 4):
            assert answer.outcome in {gateway_pb2.OUTCOME_ANSWERED_WITH_CAVEAT, gateway_pb2.OUTCOME_ANSWERED}
            assert answer.notices, answer
        await generates_again(served, model)


async def test_a_dead_model_is_left_alone_and_answers_cost_no_waiting(served: Served, model: ModelServer) -> None:
    async with survives(served, sockets=20):
        model.script = always(Hang())
        await answered(served, 12)
        loop = asyncio.get_running_loop()
        seen = len(model.requests)
        began = loop.time()
        answers = [(await answered(served, 1))[0] for _ in range(10)]
        assert {answer.answer_source for answer in answers} == {gateway_pb2.ANSWER_SOURCE_EXTRACTIVE}
        assert loop.time() - began < 5.0  # ten waits for a first token would be ten seconds
        assert len(model.requests) - seen <= 4
        await generates_again(served, model)


@pytest.mark.slow
async def test_retries_stay_a_tenth_of_the_traffic(served: Served, model: ModelServer) -> None:
    turn = iter(range(1_000_000))
    model.script = lambda _: Failure(503) if next(turn) % 3 == 0 else GENERATED
    seen = len(model.requests)
    for _ in range(10):
        await answered(served, 10)
    # A reserve of a few, and a tenth of a hundred; without a budget every third would be made again.
    assert len(model.requests) - seen <= 100 + 10 + 20
    await generates_again(served, model)


async def test_no_code_but_ok_left_the_model_s_faults(served: Served) -> None:
    handled = {name: value for name, value in (await served.metrics()).items() if "server_handled_total" in name}
    codes = {name.partition('grpc_code="')[2].partition('"')[0] for name, value in handled.items() if value}
    assert codes <= {"OK", "Cancelled"}, handled
    assert await served.health() == 1
