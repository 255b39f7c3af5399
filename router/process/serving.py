"""What a process serves: gRPC, HTTP and metrics over one application, and the work that goes on beside them."""

from __future__ import annotations

import asyncio
import secrets
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

from router.access.auth import Gate
from router.access.identity import require_loopback
from router.access.tls import open_certificates
from router.application import Application, key_ring, open_application
from router.grpc.admin_service import AdminService
from router.grpc.admit import caller
from router.grpc.corpus_service import CorpusService
from router.grpc.gateway_service import GatewayService
from router.grpc.server import open_server
from router.process.canary import read_golden, watching
from router.process.serverlock import RunningServer, server_lock
from router.telemetry.exposition import open_metrics
from router.telemetry.metrics import Metrics
from standard.corpus.ingest import IngestReport
from standard.corpus.reembed.worker import Reembedder
from standard.domain.errors import PointsmanError
from standard.tasks import task_group

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from router.access.tls import Certificates
    from router.process.workers import Place
    from router.settings import Settings

_log = structlog.get_logger("pointsman.application")
_MIGRATE_SECONDS = 300.0
_PURGE_SECONDS = 3600.0


@asynccontextmanager
async def open_grpc(
    application: Application,
    *,
    port: int | None = None,
    gate: Gate | None = None,
    shared: bool = False,
    certificates: Certificates | None = None,
) -> AsyncIterator[int]:
    """Yield the port on which the application is served; `port` and `gate` override the application's.

    A `shared` port is one that other workers listen on as well. With `certificates` it speaks TLS.
    """
    settings = application.settings
    server_settings = settings.server if port is None else settings.server.model_copy(update={"port": port})
    health = application.health
    await health.check()

    async def ingest_from_wire(tenant: str, collection: str, incoming: Any, *, prune: bool) -> IngestReport:  # noqa: ANN401
        return await application.ingest(tenant, collection, incoming, prune=prune)

    reembeddings = application.reembeddings
    reembedder = Reembedder(application.pool, reembeddings.embedders, reembeddings.scan_of)
    services = (
        GatewayService(application.gateway, settings, caller),
        CorpusService(
            application.pool,
            application.passages,
            application.embed,
            application.embedder_identity,
            ingest_from_wire,
            settings.limits,
            caller,
            application.tables,
            application.reembeddings,
            application.gateway.place,
        ),
        AdminService(application.policies, application.journal, caller),
    )
    async with (
        task_group() as group,
        open_server(
            server_settings,
            application.metrics,
            services,
            health.servicer,
            gate or application.gate,
            shared=shared,
            certificates=certificates,
            calls=application.calls,
        ) as bound,
    ):
        followers = [
            group.create_task(health.follow()),
            group.create_task(application.policies.follow()),
            group.create_task(_purge_forever(application)),
            group.create_task(reembedder.follow()),
            group.create_task(application.drift.follow()),
        ]
        try:
            yield bound
        finally:
            for follower in followers:
                follower.cancel()


async def _purge_forever(application: Application) -> None:
    """Delete runs beyond their retention, a batch at a time."""
    days = application.settings.journal.retention_days
    while True:
        deleted = 0
        try:
            deleted = await application.journal.purge(days)
        except PointsmanError as error:
            _log.warning("old runs could not be deleted; trying again later", error=str(error))
        await asyncio.sleep(0.1 if deleted else _PURGE_SECONDS)


@asynccontextmanager
async def open_http_beside(
    application: Application,
    *,
    port: int | None = None,
    gate: Gate | None = None,
    listening: socket.socket | None = None,
    certificates: Certificates | None = None,
) -> AsyncIterator[int]:
    """Yield the port on which the application is served over HTTP; `port` and `gate` override the application's.

    `listening` is a socket that workers share; else one is made. With `certificates` it speaks TLS.
    """
    from router.http.app import HttpApp, served_paths
    from router.http.app import caller as caller_of
    from router.http.asking import HttpParts
    from router.http.console import ConsoleParts, console_paths
    from router.http.observe import ObserveHttp
    from router.http.server import open_http

    settings, health = application.settings, application.health

    async def ready() -> tuple[bool, Mapping[str, bool]]:
        if not health.state:
            await health.check()
        return health.serving, health.state

    parts = HttpParts(
        gateway=application.gateway,
        retriever=application.passages,
        embed=application.embed,
        settings=settings,
        identify=caller_of,
        ready=ready,
        gate=gate or application.gate,
    )
    console = (
        console_paths(ConsoleParts(application.pool, application.journal, application.policies, application.tables))
        if settings.http.console
        else ()
    )
    served = served_paths(settings.http.contracts, console)
    app = HttpApp(parts, served, ObserveHttp(application.metrics, application.calls))
    async with open_http(
        settings.http,
        app,
        grace_seconds=settings.server.grace_seconds,
        port=port,
        listening=listening,
        certificates=certificates,
    ) as bound:
        yield bound


@asynccontextmanager
async def open_server_process(settings: Settings) -> AsyncIterator[RunningServer]:
    """Yield where the server listens; holds the data directory's lock and serves the metrics."""
    keys = settings.auth.mode == "keys"
    require_loopback(settings.server.host, keys=keys)
    require_loopback(settings.server.metrics_host, "server.metrics_host (POINTSMAN_SERVER__METRICS_HOST)", keys=keys)
    if settings.http.enabled:
        require_loopback(settings.http.host, "http.host (POINTSMAN_HTTP__HOST)", keys=keys)
    golden = read_golden(settings.canary.file)
    open_certificates(settings.tls)  # wrong ones stop the start before anything else is begun
    metrics = Metrics()
    with server_lock(settings.data_dir) as lock:
        async with (
            open_application(settings, metrics) as application,
            _open_fronts(application) as (port, http_url),
            open_metrics(metrics.registry, settings.server.metrics_host, settings.server.metrics_port) as metrics_port,
            watching(application.gateway.answer, golden, settings.canary, metrics.canary_ok),
        ):
            server = lock.announce(settings.server.host, port, metrics_port, http_url)
            _log.info("serving", host=server.host, port=port, metrics_port=metrics_port, http_url=http_url)
            yield server
            lock.withdraw()


@asynccontextmanager
async def open_worker(settings: Settings, place: Place) -> AsyncIterator[tuple[Metrics, int]]:
    """Yield the metrics and their port of one worker among several, whose supervisor holds the lock.

    The first of them asks the canary's questions for all.
    """
    metrics = Metrics()
    golden = read_golden(settings.canary.file) if place.index == 0 else ()
    async with (
        open_application(settings, metrics) as application,
        _open_fronts(application, shared=True, listening=place.http_socket()),
        open_metrics(metrics.registry, settings.server.metrics_host, settings.server.metrics_port) as metrics_port,
        watching(application.gateway.answer, golden, settings.canary, metrics.canary_ok),
    ):
        yield metrics, metrics_port


@asynccontextmanager
async def _open_fronts(
    application: Application, *, shared: bool = False, listening: socket.socket | None = None
) -> AsyncIterator[tuple[int, str | None]]:
    """Yield the gRPC port and the HTTP base URL (None: not served). Both finish their calls at the same time."""
    http, certificates = application.settings.http, open_certificates(application.settings.tls)
    async with (
        task_group() as group,
        open_grpc(application, shared=shared, certificates=certificates) as port,
    ):
        if not http.enabled:
            yield port, None
            return
        stop = asyncio.Event()
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            async with open_http_beside(application, listening=listening, certificates=certificates) as bound:
                started.set_result(bound)
                await stop.wait()

        serving = group.create_task(serve(), name="http")
        waited: list[asyncio.Future[Any]] = [started, serving]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            await serving  # raises why it did not start
        try:
            host = f"[{http.host}]" if ":" in http.host else http.host
            yield port, f"{'http' if certificates is None else 'https'}://{host}:{started.result()}"
        finally:
            stop.set()


@asynccontextmanager
async def open_local_server(settings: Settings) -> AsyncIterator[tuple[int, str]]:
    """Yield the port of a server within this process, for one client command, and the key that opens it."""
    settings = settings.model_copy(update={"server": settings.server.model_copy(update={"host": "127.0.0.1"})})
    async with open_application(settings) as application:
        gate, local = local_gate(application)
        async with open_grpc(application, port=0, gate=gate) as port:
            yield port, local


def local_gate(application: Application) -> tuple[Gate, str]:
    """A gate for a server that one command opens for itself, and a key drawn for it that makes an operator."""
    local = secrets.token_urlsafe(32)
    keys = key_ring(application.pool, local) if application.settings.auth.mode == "keys" else None
    return Gate(keys, application.limits), local
