"""Hours in minutes: outages that last, streams cancelled by thousands. `make soak`, or `make soak SECONDS=60` for less.

Memory after is compared with memory after a warm-up under the same faults, so that what grows with each failure shows.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
from collections import Counter
from typing import TYPE_CHECKING

import grpc
import pytest
from pointsman.client import question
from pointsman.v1 import gateway_pb2

from tests.chaos.conftest import GENERATED
from tests.chaos.gateway_process import TYPED, WHERE, Served, code_of, gateway, stopped
from tests.chaos.test_clients import LONG, cancel_storm
from tests.chaos.test_workers import hammered, rolled, total
from tests.support.model_server import Failure, Hang, Raw, Reply, always

if TYPE_CHECKING:
    from tests.support.model_server import Behaviour, ModelServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(7200)]
SECONDS = float(os.environ.get("POINTSMAN_SOAK_SECONDS", "600"))
WARM_SECONDS = min(90.0, max(15.0, SECONDS / 4))
CALLS = max(1000, int(20_000 * min(1.0, SECONDS / 600)))
STREAMS = max(300, int(10_000 * min(1.0, SECONDS / 600)))
_ROUTES = (gateway_pb2.ROUTE_UNSPECIFIED, gateway_pb2.ROUTE_STANDARD, gateway_pb2.ROUTE_AGENTIC)
_FAULTS: tuple[Behaviour, ...] = (
    Failure(500),
    Hang(),
    Reply("It is in the shed.", cut_after=2),
    Raw(),
    Failure(429, retry_after=0.2),
)


async def asking(served: Served, seconds: float, codes: dict[grpc.StatusCode, int], *, clients: int = 4) -> None:
    """Clients that ask one question after another for so long; counts the codes."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds

    async def client() -> None:
        for route in itertools.cycle(_ROUTES):
            if loop.time() >= until:
                return
            code = await code_of(served.client.answer(question(WHERE, route=route), timeout_seconds=4.0))
            codes[code] = codes.get(code, 0) + 1
            await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())


async def memory(served: Served) -> float:
    """Resident bytes, the median of a few looks."""
    looks = []
    for _ in range(5):
        looks.append((await served.footprint()).bytes)
        await asyncio.sleep(0.2)
    return statistics.median(looks)


async def stays_flat(served: Served, model: ModelServer, what: str) -> None:
    """Ask for the time of an outage; memory stays within 5%, errors are typed, and all is well after."""
    codes: dict[grpc.StatusCode, int] = {}
    await asking(served, WARM_SECONDS, codes)
    before, held = await memory(served), await served.footprint()
    model.requests.clear()
    await asking(served, SECONDS / 2, codes)
    after = await memory(served)
    print(f"\n{what}: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB after {SECONDS / 2:.0f} s; {codes}")  # noqa: T201
    assert set(codes) <= TYPED | {grpc.StatusCode.OK}
    assert after <= 1.05 * before
    assert held.tasks > 0


async def test_an_outage_of_the_model_keeps_memory_flat(served: Served, model: ModelServer) -> None:
    before = await served.footprint()
    turn = itertools.count()
    model.script = lambda _: _FAULTS[next(turn) // 20 % len(_FAULTS)]
    await stays_flat(served, model, "outage of the model")
    model.script = always(GENERATED)
    await served.recovers(within_seconds=10)
    await served.settles(before, sockets=20)


async def test_an_outage_of_the_database_keeps_memory_flat(served: Served, model: ModelServer) -> None:
    model.script = always(GENERATED)
    before = await served.footprint()
    with stopped(served):
        await stays_flat(served, model, "outage of the database")
    await served.recovers(within_seconds=20)
    await served.settles(before, sockets=20, within_seconds=40)


async def test_thousands_of_cancelled_streams_leave_nothing_behind(served: Served, model: ModelServer) -> None:
    model.script = always(LONG)
    await cancel_storm(served, 300, at_once=24)
    before, held = await served.footprint(), await memory(served)
    model.requests.clear()
    answering, refused = 0, Counter[str]()
    looks = []
    for number in range(STREAMS // 100):
        if number % (STREAMS // 500) == 0:
            looks.append(f"{await memory(served) / 1e6:.1f}")
        refused += await cancel_storm(served, 100, at_once=24)
        assert len(model.requests) <= 200
        answering += len(model.requests)
        model.requests.clear()
    await served.settles(before, sockets=20)
    after = await memory(served)
    told = f"{STREAMS} cancelled streams, {answering} of them in the midst of their answers, refused {dict(refused)}"
    print(f"\n{told}: {held / 1e6:.1f} MB before, {', '.join(looks)} on the way, {after / 1e6:.1f} MB after")  # noqa: T201
    assert refused.total() <= STREAMS / 100, refused
    assert answering >= STREAMS / 3  # left in the midst of their answers, and not all before or refused
    assert after <= 1.05 * held
    await served.is_idle()


async def test_no_call_fails_while_three_workers_are_rolled_again_and_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with gateway(tmp_path_factory.mktemp("rolling"), "--workers", "3") as group:
        done = asyncio.Event()
        rolls = 0
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(hammered(group, CALLS, clients=8, done=done))
            while rolls == 0 or total(await group.metrics(), "grpc_server_handled_total") < CALLS:
                await rolled(group, workers=3)
                rolls += 1
            done.set()
        print(f"\n{asking.result()} calls, none failed, over {rolls} rolls of 3 workers")  # noqa: T201
        assert asking.result() >= CALLS
