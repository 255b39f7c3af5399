"""The port that Prometheus scrapes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import start_http_server

from router.settings import BadSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from prometheus_client import CollectorRegistry


@asynccontextmanager
async def open_metrics(registry: CollectorRegistry, host: str, port: int) -> AsyncIterator[int]:
    """Serve what a registry collects and yield the port; 0 takes a free one. Raises BadSettings for one in use."""
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        problem = f"server.metrics_port (POINTSMAN_SERVER__METRICS_PORT): {host}:{port}: {error.strerror}"
        raise BadSettings([f"{problem}; 0 takes a free one"]) from None
    try:
        yield server.server_port
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        await asyncio.to_thread(thread.join, 5.0)
