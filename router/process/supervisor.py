"""The process above the workers: it holds what they share, starts one again that died, and rolls and stops them.

async with open_group(settings, overrides) as group:
    group.server                # where the group listens
    await group.keep()          # until cancelled; beside it group.roll() as often as asked

Shared by all: the data directory's lock and the embedded PostgreSQL (held here, so that it outlives any worker), the
gRPC port (each worker listens on it by SO_REUSEPORT, and this process keeps it reserved), the HTTP socket (inherited,
so that no connection is lost with a worker that stops), and the group's metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import urllib.request
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from router.access.identity import require_loopback
from router.access.tls import open_certificates
from router.configs import database_config
from router.process.serverlock import server_lock
from router.process.workers import WRONG_SETTINGS, Place
from router.settings import BadSettings, load_settings
from router.telemetry.exposition import open_metrics
from router.telemetry.merge import counted, merged, parsed
from standard.database.pool import database_url
from standard.domain.errors import Unavailable
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from router.process.serverlock import RunningServer
    from router.settings import Settings

READY_SECONDS = 120.0
"""Longest start of a worker; the first one migrates the database meanwhile."""
_BEYOND_GRACE_SECONDS = 15.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0
_SCRAPE_SECONDS = 2.0
_LINE_BYTES = 16 * 1024 * 1024
_ACCEPT = "application/openmetrics-text; version=1.0.0"
_log = structlog.get_logger("pointsman.supervisor")


class GroupMetrics(Collector):
    """The metrics of all workers as one, those of workers that are gone included.

    Scraped in the HTTP server's threads, told of workers in the event loop's: what a worker counted is seen once, as
    its own or as that of one that is gone.
    """

    def __init__(self, host: str) -> None:
        self._host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))  # noqa: S104
        self._ports: dict[int, int] = {}
        self._last: dict[int, list[Metric]] = {}
        self._gone: list[Metric] = []
        self._lock = threading.Lock()

    def came(self, index: int, port: int) -> None:
        """A worker serves its metrics on that port."""
        with self._lock:
            self._ports[index] = port

    def left(self, index: int, text: str) -> None:
        """A worker is gone; `text` is its last word, "" where it died without one and what it told before counts."""
        told: list[Metric] | None = None
        with contextlib.suppress(ValueError):
            told = parsed(text) if text else None
        with self._lock:
            self._ports.pop(index, None)
            last = self._last.pop(index, [])
            self._gone = merged([self._gone, counted(last if told is None else told)])

    def collect(self) -> Iterator[Metric]:
        """Ask every worker; of one that does not answer in time, what it told last."""
        with self._lock:
            ports = dict(self._ports)
        fresh: dict[int, list[Metric]] = {}
        for index, port in ports.items():
            with contextlib.suppress(OSError, ValueError):
                fresh[index] = parsed(_scraped(self._host, port))
        with self._lock:
            # One that left, or was replaced, meanwhile is counted among those that are gone.
            self._last |= {index: told for index, told in fresh.items() if self._ports.get(index) == ports[index]}
            whole = merged([*self._last.values(), self._gone])
        yield from whole

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before the first scrape."""
        return iter(())


def _scraped(host: str, port: int) -> str:
    host = f"[{host}]" if ":" in host else host
    request = urllib.request.Request(f"http://{host}:{port}/metrics", headers={"accept": _ACCEPT})
    with urllib.request.urlopen(request, timeout=_SCRAPE_SECONDS) as response:  # noqa: S310 - http, loopback
        return str(response.read().decode())


class Worker:
    """One slot of the group: at most one process at a time."""

    def __init__(self, place: Place, metrics: GroupMetrics, grace_seconds: float) -> None:
        self._place = place
        self._metrics = metrics
        self._grace = grace_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._last_word = ""
        self._ready = asyncio.Event()

    @property
    def index(self) -> int:
        """Its number from 0."""
        return self._place.index

    @property
    def process(self) -> asyncio.subprocess.Process | None:
        """The process, while there is one."""
        return self._process

    async def start(self) -> None:
        """Start the process and wait until it serves.

        Raises BadSettings or Unavailable where it ends instead; what it said is on standard error.
        """
        reading, writing = os.pipe()
        self._ready.clear()
        self._last_word = ""
        place = Place(
            self.index, self._place.port, self._place.metrics_port, self._place.http, writing, self._place.overrides
        )
        inherited = [writing] + ([place.http] if place.http >= 0 else [])
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "router.process.workers",
                place.to_json(),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=inherited,
                env={**os.environ, "PYTHONPATH": _python_path()},
                start_new_session=True,  # Ctrl-C in a terminal is for the supervisor, which stops them in order
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._listening = asyncio.create_task(self._listen(reading), name=f"worker {self.index}")
        ended = asyncio.ensure_future(self._process.wait())
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait({ended, ready}, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            ended.cancel()
        if not self._ready.is_set():
            code = self._process.returncode
            await self.kill()
            if code == WRONG_SETTINGS:
                raise BadSettings([f"worker {self.index} does not start with these settings"])
            raise Unavailable(f"worker {self.index} did not start" + ("" if code is None else f" (exit code {code})"))
        _log.info("worker serves", worker=self.index, pid=self._process.pid)

    async def ended(self) -> int:
        """Wait for the end of the process, take its counts over; its exit code."""
        if self._process is None:
            return 0
        code = await self._process.wait()
        if self._listening is not None:
            await asyncio.wait([self._listening])
        self._metrics.left(self.index, self._last_word)
        self._process, self._listening = None, None
        return code

    async def stop(self) -> None:
        """Let it finish its calls, at most for its grace and a little more; then it is killed."""
        if self._process is None:
            return
        _signalled(self._process, signal.SIGTERM)
        try:
            async with asyncio.timeout(self._grace + _BEYOND_GRACE_SECONDS):
                await self.ended()
        except TimeoutError:
            _log.warning("worker did not stop in time and is killed", worker=self.index)
            await self.kill()

    async def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            _signalled(self._process, signal.SIGKILL)
            await self.ended()

    async def _listen(self, descriptor: int) -> None:
        """Read what the worker tells, to the end of the pipe."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LINE_BYTES)
        pipe = os.fdopen(descriptor, "rb")
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            while line := await reader.readline():
                told = json.loads(line)
                if "ready" in told:
                    self._metrics.came(self.index, told["ready"]["metrics_port"])
                    self._ready.set()
                self._last_word = told.get("metrics", self._last_word)
        except ValueError as error:
            _log.warning("a worker's message cannot be read", worker=self.index, error=str(error))
        finally:
            transport.close()


def _signalled(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _python_path() -> str:
    root = Path(__file__).resolve().parents[2]
    given = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([str(root), str(root / "protos"), *([given] if given else [])])


class Group:
    """The workers together. `server` says where they listen."""

    def __init__(self, server: RunningServer, workers: list[Worker], overrides: Mapping[str, Any]) -> None:
        self.server = server
        self._workers = workers
        self._overrides = overrides
        self._rolling = asyncio.Lock()

    @property
    def pids(self) -> list[int]:
        """The processes that live."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    async def keep(self) -> None:
        """Start workers again that die, each after a pause that grows while it does not hold. Runs until cancelled."""
        async with task_group() as group:
            for worker in self._workers:
                group.create_task(self._keep(worker), name=f"keep worker {worker.index}")

    async def _keep(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        pause, began = _FIRST_PAUSE_SECONDS, loop.time()
        while True:
            process = worker.process
            if process is not None:
                await process.wait()
            async with self._rolling:
                if worker.process is not process:  # it was replaced meanwhile
                    began = loop.time()
                    continue
                code = await worker.ended()
            if loop.time() - began > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            _log.warning("worker is gone; starting it again", worker=worker.index, code=code, after_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            async with self._rolling:
                began = loop.time()
                if worker.process is None:
                    with contextlib.suppress(BadSettings, Unavailable):
                        await worker.start()

    async def roll(self) -> None:
        """Replace the workers one after another; the others serve meanwhile. Wrong settings change nothing."""
        try:
            load_settings(**self._overrides)
        except BadSettings as error:
            _log.warning("the settings are wrong; the workers stay as they are", problems=error.problems)
            return
        for worker in self._workers:
            async with self._rolling:
                await worker.stop()
                try:
                    await worker.start()
                except (BadSettings, Unavailable) as error:
                    told = str(error)
                    _log.warning("the roll stops here: a new worker does not start", worker=worker.index, error=told)
                    return
        _log.info("workers rolled", workers=len(self._workers))

    async def stop(self) -> None:
        """Stop all at once, each finishing its calls."""
        async with self._rolling, task_group() as group:
            for worker in self._workers:
                group.create_task(worker.stop())

    async def kill(self) -> None:
        """End all at once."""
        for worker in self._workers:
            await worker.kill()


@asynccontextmanager
async def open_group(settings: Settings, overrides: Mapping[str, Any]) -> AsyncIterator[Group]:
    """Yield the workers, serving; the first that does not start ends all.

    Raises BadSettings for an address that is taken, or that others can reach while no keys are asked for.
    """
    keys = settings.auth.mode == "keys"
    server, http = settings.server, settings.http
    require_loopback(server.host, keys=keys)
    require_loopback(server.metrics_host, "server.metrics_host (POINTSMAN_SERVER__METRICS_HOST)", keys=keys)
    if http.enabled:
        require_loopback(http.host, "http.host (POINTSMAN_HTTP__HOST)", keys=keys)
    open_certificates(settings.tls)
    if not hasattr(socket, "SO_REUSEPORT"):
        raise BadSettings(["server.workers (POINTSMAN_SERVER__WORKERS): this system cannot share a port; use 1"])
    async with AsyncExitStack() as stack:
        lock = stack.enter_context(server_lock(settings.data_dir))
        await stack.enter_async_context(database_url(database_config(settings)))
        port = stack.enter_context(_reserved(server.host, server.port))
        listening = stack.enter_context(_listening(settings)) if http.enabled else None
        metrics = GroupMetrics(server.metrics_host)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(metrics)
        metrics_port = await stack.enter_async_context(open_metrics(registry, server.metrics_host, server.metrics_port))
        workers = [
            Worker(
                Place(
                    index=index,
                    port=port,
                    metrics_port=server.metrics_port and server.metrics_port + 1 + index,
                    http=-1 if listening is None else listening.fileno(),
                    told=-1,
                    overrides=overrides,
                ),
                metrics,
                server.grace_seconds,
            )
            for index in range(server.workers)
        ]
        url = None
        if listening is not None:
            host = f"[{http.host}]" if ":" in http.host else http.host
            url = f"{'https' if settings.tls.certificate else 'http'}://{host}:{listening.getsockname()[1]}"
        try:
            async with task_group() as group:
                for worker in workers:
                    group.create_task(worker.start())
            announced = lock.announce(server.host, port, metrics_port, url)
            _log.info("serving", host=server.host, port=port, metrics_port=metrics_port, http_url=url)
            whole = Group(announced, workers, overrides)
            yield whole
            lock.withdraw()
            await whole.stop()
        finally:
            for worker in workers:
                await worker.kill()


@contextlib.contextmanager
def _reserved(host: str, port: int) -> Iterator[int]:
    """Hold a port that workers may share, without listening on it. One that somebody listens on is refused."""
    plain = host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(plain, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:  # sharing was not asked for: a listener makes it fail
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            address = (*probe.getsockname()[:2], *address[2:])
        held = socket.socket(family, kind, protocol)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
    except OSError as error:
        problem = error.strerror or str(error)
        told = f"server.port (POINTSMAN_SERVER__PORT): {host}:{port}: {problem}; 0 takes a free one"
        raise BadSettings([told]) from None
    with held:
        yield int(held.getsockname()[1])


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    from router.http.server import listening_socket

    with listening_socket(settings.http.host, settings.http.port) as listening:
        yield listening
