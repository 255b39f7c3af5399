"""Several workers behind the same ports: they share the load, die, are replaced in turn, and no call is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest
import pytest_asyncio
from pointsman.client import Pointsman, question
from pointsman.v1 import gateway_pb2

from tests.chaos.conftest import GENERATED
from tests.chaos.gateway_process import WHERE, Served, gateway, stop
from tests.chaos.survival import MORE_BYTES, survives
from tests.support.model_server import ModelServer, always

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.asyncio(loop_scope="session")
WORKERS = 2
CALLS = int(os.environ.get("POINTSMAN_CHAOS_CALLS", "1500"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def group(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A supervisor with its workers, and no model."""
    folder = tmp_path_factory.mktemp("workers")
    async with gateway(folder, "--workers", str(WORKERS)) as running:
        yield running


def workers_of(served: Served) -> list[psutil.Process]:
    """The worker processes."""
    found = []
    for child in psutil.Process(served.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # dead, and not yet waited for
            if any("router.process.workers" in word for word in child.cmdline()):
                found.append(child)
    return found


def total(metrics: dict[str, float], name: str) -> float:
    """The sum over all labels of a metric."""
    return sum(value for sample, value in metrics.items() if sample.partition("{")[0] == name)


async def hammered(served: Served, calls: int, *, clients: int, done: asyncio.Event | None = None) -> int:
    """Ask with the published client until `calls` are answered, and until `done`; how many. Any failure raises."""
    answered = 0

    async def client() -> None:
        nonlocal answered
        # A channel each, with subchannels of its own: connections spread over the workers.
        async with Pointsman(served.target) as pointsman:
            while answered < calls or (done is not None and not done.is_set()):
                if answered % 4 == 0:
                    await pointsman.answer(question(WHERE, route=gateway_pb2.ROUTE_STANDARD))
                else:
                    await pointsman.classify(WHERE)
                answered += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(clients):
            tasks.create_task(client())
    return answered


async def rolled(served: Served, *, workers: int = WORKERS) -> None:
    """Ask for a roll and wait until every worker is another one."""
    before = {worker.pid for worker in workers_of(served)}
    served.process.send_signal(signal.SIGHUP)
    await until_workers(served, lambda now: not (now & before), workers=workers)


async def until_workers(
    served: Served, holds: Callable[[set[int]], bool], *, workers: int = WORKERS, within_seconds: float = 120.0
) -> None:
    """Wait until there are as many as there should be, they hold, and they serve."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_seconds
    while True:
        now = {worker.pid for worker in workers_of(served)}
        lines = served.log.read_text().splitlines()
        serving = {pid for pid in now if any(f'"pid": {pid}' in line and "worker serves" in line for line in lines)}
        if len(serving) == workers and holds(serving):
            return
        assert loop.time() < until, (now, serving)
        await asyncio.sleep(0.1)


async def test_workers_share_one_grpc_and_one_http_port_and_their_metrics_add_up(group: Served) -> None:
    before = total(await group.metrics(), "grpc_server_handled_total")
    assert len(workers_of(group)) == WORKERS
    assert await hammered(group, 40, clients=12) >= 40
    for _ in range(6):
        with await asyncio.to_thread(urllib.request.urlopen, f"{group.http_url}/readyz", None, 10) as response:
            assert response.status == 200
    metrics = await group.metrics()
    assert total(metrics, "grpc_server_handled_total") >= before + 40
    assert metrics['pointsman_dependency_up{dependency="database"}'] == 1.0
    assert metrics["pointsman_inflight_requests"] == 0.0


async def test_no_call_fails_while_the_workers_are_replaced_in_turn(group: Served) -> None:
    done = asyncio.Event()
    before = total(await group.metrics(), "grpc_server_handled_total")
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(hammered(group, CALLS, clients=24, done=done))
        await asyncio.sleep(1.0)
        await rolled(group)
        done.set()
    assert asking.result() >= CALLS
    # What the workers that are gone had counted is still counted.
    assert total(await group.metrics(), "grpc_server_handled_total") >= before + CALLS


@pytest.mark.slow
async def test_a_worker_killed_is_started_again_and_the_calls_of_its_clients_go_on(group: Served) -> None:
    victim = min(worker.pid for worker in workers_of(group))
    others = {
        worker: (worker.num_fds(), worker.memory_info().rss) for worker in workers_of(group) if worker.pid != victim
    }
    done = asyncio.Event()
    async with survives(group) as fault:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(hammered(group, 200, clients=4, done=done))
            arriving = tasks.create_task(fault.ingest(6))
            await asyncio.sleep(0.5)
            os.kill(victim, signal.SIGKILL)
            await until_workers(group, lambda now: victim not in now)
            await arriving
            done.set()
        assert asking.result() >= 200
    for worker, (files, held) in others.items():
        assert worker.num_fds() <= files + 8
        assert worker.memory_info().rss <= held + MORE_BYTES


@pytest.mark.slow
async def test_a_roll_with_wrong_settings_changes_nothing(group: Served) -> None:
    before = {worker.pid for worker in workers_of(group)}
    (group.data.parent / "pointsman.toml").write_text("[server]\nmax_inflight = 0\n")
    try:
        group.process.send_signal(signal.SIGHUP)
        await asyncio.sleep(2.0)
        assert {worker.pid for worker in workers_of(group)} == before
        assert "the settings are wrong" in group.log.read_text()
    finally:
        (group.data.parent / "pointsman.toml").unlink()
    assert (await group.client.answer(WHERE)).answer


@pytest.mark.slow
async def test_workers_stop_with_their_supervisor_however_it_ends(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with ModelServer(always(GENERATED)) as model:
        folder = tmp_path_factory.mktemp("ending")
        for number in (signal.SIGTERM, signal.SIGKILL):
            async with gateway(folder, "--workers", "2", model=model, filled=number is signal.SIGTERM) as served:
                workers = workers_of(served)
                assert len(workers) == 2
                assert (await served.client.answer(WHERE)).answer_source == gateway_pb2.ANSWER_SOURCE_GENERATED
                if number is signal.SIGTERM:
                    model.script = always(replace(GENERATED, first_token_delay=0.8))
                    asking = asyncio.create_task(served.client.answer(question(WHERE)))
                    await model.arrived(len(model.requests) + 1)
                    assert await stop(served.process) == 0
                    assert (await asking).answer_source == gateway_pb2.ANSWER_SOURCE_GENERATED  # it was finished first
                    model.script = always(GENERATED)
                else:
                    served.process.kill()
                    await served.process.wait()
                gone, alive = await asyncio.to_thread(psutil.wait_procs, workers, 20)
                assert not alive
                assert len(gone) == 2
