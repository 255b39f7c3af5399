"""A gateway as operators run it: a child process with its own data directory and its own embedded PostgreSQL.

    async with gateway(tmp_path, model=server) as served:
        await served.client.answer("Where is the spare pump?")
        before = await served.footprint()
        ...
        await served.settles(before)        # no task, socket or file more than before

What goes to its log is kept; at the end nothing in it may be a traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import psutil
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from pointsman.client import Pointsman
from pointsman.v1 import corpus_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping

    from pointsman.v1 import gateway_pb2

    from tests.support.model_server import ModelServer

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90.0
TYPED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED})
"""Codes that a call may end with while a dependency is away; INTERNAL and UNKNOWN are bugs."""
WHERE = "Where is the spare bilge pump kept?"
_DOCUMENTS = (
    ("pump", "Spare pump", "The spare bilge pump is kept in the shed at Alder Wharf."),
    ("tide", "Tide table", "High water at Alder Wharf is forty minutes after Cold Haven."),
    ("dock", "Dockmaster", "Ines Roe is the dockmaster of Alder Wharf and signs for every pump."),
)
_SETTINGS: Mapping[str, str] = {
    "POINTSMAN_SERVER__PORT": "0",
    "POINTSMAN_SERVER__METRICS_PORT": "0",
    "POINTSMAN_SERVER__GRACE_SECONDS": "5",
    "POINTSMAN_HTTP__PORT": "0",
    "POINTSMAN_LOG__FORMAT": "json",
    # Kept constant, so that a socket more is a socket leaked.
    "POINTSMAN_DATABASE__POOL_MIN": "4",
    "POINTSMAN_DATABASE__POOL_MAX": "4",
    "POINTSMAN_DATABASE__ACQUIRE_TIMEOUT_SECONDS": "2",
    "POINTSMAN_DATABASE__STATEMENT_TIMEOUT_SECONDS": "2",
    "POINTSMAN_JOURNAL__LEASE_SECONDS": "2",
    "POINTSMAN_LLM__MODEL": "scripted",
    "POINTSMAN_LLM__MAX_CONCURRENCY": "16",
    "POINTSMAN_LLM__RETRIES": "1",
    "POINTSMAN_LLM__TIMEOUT_SECONDS": "8",
    "POINTSMAN_LLM__FIRST_TOKEN_TIMEOUT_SECONDS": "1",
    "POINTSMAN_LLM__BREAKER_SECONDS": "1",
    "POINTSMAN_LLM__IDLE_TIMEOUT_SECONDS": "1",
}


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a process holds: asyncio tasks, open files and sockets, bytes of memory."""

    tasks: int
    descriptors: int
    bytes: int


class Served:
    """A running gateway process and a client of it."""

    def __init__(self, process: asyncio.subprocess.Process, data: Path, log: Path, client: Pointsman) -> None:
        self.process = process
        self.data = data
        self.log = log
        self.client = client

    @property
    def note(self) -> dict[str, object]:
        """Where it listens."""
        found: dict[str, object] = json.loads((self.data / "server.json").read_text())
        return found

    @property
    def target(self) -> str:
        """HOST:PORT of gRPC."""
        return f"{self.note['host']}:{self.note['port']}"

    @property
    def http_url(self) -> str:
        """Base URL of HTTP."""
        return str(self.note["http_url"])

    async def footprint(self) -> Footprint:
        """What it holds at this moment."""
        census = self.log.with_name("census")
        told = census.read_text().splitlines() if census.exists() else []
        self.process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(10):
            while True:
                now = census.read_text().splitlines() if census.exists() else []
                if len(now) > len(told):
                    break
                await asyncio.sleep(0.02)
        seen = psutil.Process(self.process.pid)
        return Footprint(int(now[-1]), seen.num_fds(), seen.memory_info().rss)

    async def settles(self, before: Footprint, *, within_seconds: float = 20.0, sockets: int = 8) -> Footprint:
        """Wait until no more tasks, and at most `sockets` more descriptors, are held than before; return what is.

        Idle connections to the model server may stay, which is what `sockets` is for.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + within_seconds
        while True:
            now = await self.footprint()
            # Two more: a probe of health that happens to run has a task and one for its timeout.
            if now.tasks <= before.tasks + 2 and now.descriptors <= before.descriptors + sockets:
                return now
            assert loop.time() < until, f"held before: {before}, after: {now}"
            await asyncio.sleep(0.5)

    async def health(self, service: str = "") -> health_pb2.HealthCheckResponse.ServingStatus.ValueType:
        """What the health service says."""
        async with grpc.aio.insecure_channel(self.target) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
        status: health_pb2.HealthCheckResponse.ServingStatus.ValueType = answer.status
        return status

    async def metrics(self) -> dict[str, float]:
        """Every sample by its name and labels as they are written."""
        url = f"http://127.0.0.1:{self.note['metrics_port']}/metrics"
        text = await asyncio.to_thread(_fetched, url)
        rows = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in rows}

    async def is_idle(self, *, within_seconds: float = 10.0) -> None:
        """Wait until no answer holds a place: the last runs may still be closing their journal."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_seconds
        while (held := (await self.metrics())["pointsman_inflight_requests"]) != 0:
            assert loop.time() < until, f"{held:.0f} places are held by nobody"
            await asyncio.sleep(0.1)

    async def recovers(self, request: str | gateway_pb2.AnswerRequest = WHERE, *, within_seconds: float) -> float:
        """Ask until an answer comes; the seconds it took. Whatever comes before it must be a typed error."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (code := await code_of(self.client.answer(request, timeout_seconds=5))) is not grpc.StatusCode.OK:
            assert code in TYPED, code
            assert loop.time() - began < within_seconds, f"not back after {within_seconds} s: {code}"
            await asyncio.sleep(0.1)
        return loop.time() - began

    def postmaster(self) -> psutil.Process:
        """The embedded PostgreSQL's first process."""
        return psutil.Process(int((self.data / "postgres/cluster/postmaster.pid").read_text().split("\n")[0]))


def stopped(served: Served) -> contextlib.ExitStack:
    """Stop every process of PostgreSQL at the spot; the stack's end lets them go on."""
    postmaster = served.postmaster()
    everyone = [postmaster, *postmaster.children(recursive=True)]
    stack = contextlib.ExitStack()
    for process in everyone:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
            stack.callback(_resume, process)
    return stack


def _resume(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.resume()


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return str(response.read().decode())


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    """The code that a call ends with."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def retry_seconds(error: grpc.aio.AioRpcError) -> float | None:
    """When an error says that one may come back."""
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return float(info.retry_delay.ToMicroseconds()) / 1e6
    return None


async def start(
    folder: Path, model: ModelServer | None, settings: Mapping[str, str], *arguments: str, disk_bytes: int = 0
) -> tuple[asyncio.subprocess.Process, Path, Path]:
    """Start a gateway on `folder` and wait until it announces itself; (process, data directory, log).

    With `disk_bytes` its data directory is a disk of its own, of that size; the path then leads there through /proc.
    """
    data = folder / "data"
    data.mkdir(exist_ok=True)
    log = folder / "log"
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("POINTSMAN_")},
        **_SETTINGS,
        **settings,
        "POINTSMAN_DATA_DIR": str(data),
        "POINTSMAN_CHAOS_CENSUS": str(folder / "census"),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}",
        "OMP_NUM_THREADS": "1",
    }
    if model is not None:
        environment["POINTSMAN_LLM__BASE_URL"] = model.base_url
    with log.open("ab") as written:
        process = await asyncio.create_subprocess_exec(
            *(with_disk(data, disk_bytes) if disk_bytes else ()),
            sys.executable,
            "-m",
            "tests.chaos.watched",
            "serve",
            *arguments,
            cwd=folder,
            env=environment,
            stdout=written,
            stderr=written,
        )
    if disk_bytes:
        data = Path(f"/proc/{process.pid}/root{data}")
    async with asyncio.timeout(START_SECONDS):
        while not _announced(data, process.pid):
            if process.returncode is not None:
                raise AssertionError(log.read_text()[-4000:])
            await asyncio.sleep(0.05)
    return process, data, log


def with_disk(folder: Path, size: int) -> list[str]:
    """A command's beginning that gives it a file system of `size` bytes on `folder`, in memory and for it alone.

    It vanishes with the processes that see it. Root needs the right to mount; others a user namespace, in which they
    mount as its root and then are themselves again.
    """
    mount = f'mount -t tmpfs -o size={size},mode=755 tmpfs "$0" && exec '
    if os.geteuid() == 0:
        return ["unshare", "--mount", "sh", "-c", mount + '"$@"', str(folder)]
    again = f"unshare --user --map-user={os.getuid()} --map-group={os.getgid()} -- "
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount + again + '"$@"', str(folder)]


def _announced(data: Path, pid: int) -> bool:
    try:
        return bool(json.loads((data / "server.json").read_text())["pid"] == pid)
    except (OSError, ValueError):
        return False


async def stop(process: asyncio.subprocess.Process, *, within_seconds: float = 40.0) -> int:
    """SIGTERM, and the exit code; killed where it does not stop in time."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(within_seconds):
            return await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise


@asynccontextmanager
async def gateway(
    folder: Path,
    *arguments: str,
    model: ModelServer | None = None,
    filled: bool = True,
    settings: Mapping[str, str] | None = None,
    disk_bytes: int = 0,
) -> AsyncIterator[Served]:
    """A gateway with three documents; `settings` are environment variables without POINTSMAN_, the rest as `start`."""
    named = {f"POINTSMAN_{name}": value for name, value in (settings or {}).items()}
    process, data, log = await start(folder, model, named, *arguments, disk_bytes=disk_bytes)
    try:
        note = json.loads((data / "server.json").read_text())
        async with Pointsman(f"{note['host']}:{note['port']}") as client:
            served = Served(process, data, log, client)
            if filled:
                documents = [corpus_pb2.Document(id=name, title=title, text=text) for name, title, text in _DOCUMENTS]
                report = await client.ingest(documents)
                assert report.added == len(documents)
            yield served
    finally:
        if process.returncode is None:
            await stop(process)
    text = log.read_text()
    assert "Traceback" not in text, text[-6000:]
    assert '"exception"' not in text, text[-6000:]
