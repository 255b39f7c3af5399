"""A gateway that asks for keys, served over gRPC and HTTP at once, and clients of several tenants."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import httpx2
import pytest
import pytest_asyncio
from pointsman.client import Pointsman
from pointsman.v1 import corpus_pb2

from router.access.keys import create_key
from router.application import Application, open_application
from router.process.serving import open_grpc, open_http_beside
from router.settings import Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

PUMP = "The spare bilge pump is kept in the shed at Alder Wharf. The dockmaster signs for it."
LANTERN = "The harbour lantern burns paraffin. It is lit at dusk and put out at sunrise."
WHERE = "Where is the spare bilge pump kept?"


class Guarded:
    """A served application."""

    def __init__(self, application: Application, target: str, http: httpx2.AsyncClient) -> None:
        self.application = application
        self.target = target
        self.http = http

    async def key(self, tenant: str, **options: Any) -> str:  # noqa: ANN401 - those of create_key
        token, _ = await create_key(self.application.pool, tenant, **options)
        return token

    def client(self, key: str) -> Pointsman:
        return Pointsman(self.target, token=key, timeout_seconds=30.0)

    async def post(self, path: str, body: object, key: str = "") -> httpx2.Response:
        return await self.http.post(path, json=body, headers={"authorization": f"Bearer {key}"} if key else {})

    async def fill(self, key: str, collection: str, text: str) -> None:
        async with self.client(key) as client:
            document = corpus_pb2.Document(id=f"{collection}-1", title="Note", text=text)
            assert (await client.ingest([document], collection=collection)).added == 1

    def shed(self, reason: str) -> float:
        registry = self.application.metrics.registry
        return registry.get_sample_value("pointsman_shed_requests_total", {"reason": reason}) or 0.0


def settings_for(database_url: str, data_dir: Path, **sections: dict[str, Any]) -> Settings:
    given: dict[str, dict[str, Any]] = {
        "database": {"url": database_url},
        "server": {"port": 0, "metrics_port": 0, "grace_seconds": 1.0},
        "http": {"port": 0},
        "auth": {"mode": "keys"},
    }
    for name, section in sections.items():
        given[name] = given.get(name, {}) | section
    return load_settings(data_dir=data_dir, **given)


@asynccontextmanager
async def guarded(settings: Settings) -> AsyncIterator[Guarded]:
    async with (
        open_application(settings) as application,
        open_grpc(application) as port,
        open_http_beside(application) as http_port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{http_port}", timeout=30.0) as http,
    ):
        yield Guarded(application, f"127.0.0.1:{port}", http)


@pytest_asyncio.fixture
async def gateway(database_url: str, tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(settings_for(database_url, tmp_path)) as served:
        yield served


async def code_of(call: Awaitable[object]) -> grpc.StatusCode:
    """The status with which a call is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()
