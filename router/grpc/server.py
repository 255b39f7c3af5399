"""The gRPC server: services, health, reflection, limits, and how it starts and stops."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection
from pointsman.v1 import admin_pb2, admin_pb2_grpc, corpus_pb2, corpus_pb2_grpc, gateway_pb2, gateway_pb2_grpc

from router.access.identity import require_loopback
from router.access.tls import grpc_credentials
from router.grpc.admit import AdmitRpcs
from router.grpc.observe import ObserveRpcs
from router.settings import BadSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.access.auth import Gate
    from router.access.tls import Certificates
    from router.settings import ServerSettings
    from router.telemetry.calls import Calls
    from router.telemetry.metrics import Metrics


@asynccontextmanager
async def open_server(
    settings: ServerSettings,
    metrics: Metrics,
    services: tuple[
        gateway_pb2_grpc.GatewayServiceServicer,
        corpus_pb2_grpc.CorpusServiceServicer | None,
        admin_pb2_grpc.AdminServiceServicer,
    ],
    health: health_aio.HealthServicer,
    gate: Gate | None = None,
    *,
    shared: bool = False,
    certificates: Certificates | None = None,
    calls: Calls | None = None,
) -> AsyncIterator[int]:
    """Yield the port of a started server; at the end of the block it turns NOT_SERVING and finishes calls in flight.

    Calls pass the `gate` where there is one, and are recorded by `calls`. A `shared` port is one that other workers
    listen on as well. Raises BadSettings for an address that is taken, or one that others can reach while no keys are
    asked for.
    """
    require_loopback(settings.host, keys=gate is not None and gate.asks_for_keys)
    server = aio.server(
        interceptors=[ObserveRpcs(metrics, calls), *([] if gate is None else [AdmitRpcs(gate)])],
        options=[
            ("grpc.max_receive_message_length", settings.max_message_bytes),
            ("grpc.max_send_message_length", settings.max_message_bytes),
            ("grpc.keepalive_time_ms", int(settings.keepalive_seconds * 1000)),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.min_ping_interval_without_data_ms", int(settings.min_ping_interval_seconds * 1000)),
            ("grpc.http2.max_ping_strikes", 5),
            # A second server on the port must fail, not share it; only workers ask for sharing.
            ("grpc.so_reuseport", int(shared)),
        ],
    )
    gateway, corpus, admin = services
    gateway_pb2_grpc.add_GatewayServiceServicer_to_server(gateway, server)
    if corpus is not None:
        corpus_pb2_grpc.add_CorpusServiceServicer_to_server(corpus, server)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if settings.reflection:
        names = [
            gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"].full_name,
            corpus_pb2.DESCRIPTOR.services_by_name["CorpusService"].full_name,
            admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
            reflection.SERVICE_NAME,
        ]
        reflection.enable_server_reflection(names, server)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        if certificates is None:
            port = server.add_insecure_port(f"{host}:{settings.port}")
        else:
            port = server.add_secure_port(f"{host}:{settings.port}", grpc_credentials(certificates))
    except RuntimeError:
        raise BadSettings(
            [f"server.port (POINTSMAN_SERVER__PORT): {host}:{settings.port} is taken or not ours; 0 takes a free one"]
        ) from None
    await server.start()
    try:
        yield port
    finally:
        await health.enter_graceful_shutdown()
        await server.stop(settings.grace_seconds)
