"""A whole gateway behind real gRPC on a free port, over a fresh database with a small corpus."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest_asyncio
from pointsman.client import Pointsman
from pointsman.v1 import corpus_pb2

from router.application import Application, open_application
from router.process.serving import open_grpc
from router.settings import Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    OpenGateway = Callable[..., AbstractAsyncContextManager["Running"]]

DOCUMENTS = {
    "pump": ("Spare pump", "The spare bilge pump is kept in the shed at Alder Wharf. The dockmaster signs for it."),
    "dockmaster": ("People at Alder Wharf", "The dockmaster of Alder Wharf is Edda Quill. Her deputy is Ove Marsh."),
    "tide": ("Tide table", "High water at Alder Wharf comes forty minutes after high water at Cold Haven."),
    "lantern": ("Lantern", "The harbour lantern burns paraffin. It is lit at dusk and put out at sunrise."),
}


class Running:
    """A served application and a client of it."""

    def __init__(self, application: Application, client: Pointsman, target: str) -> None:
        self.application = application
        self.client = client
        self.target = target

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, 0 where nothing was counted yet."""
        return self.application.metrics.registry.get_sample_value(name, labels) or 0.0


def settings_for(database_url: str, data_dir: Path, **sections: dict[str, Any]) -> Settings:
    """Settings on a database, with a data directory of their own."""
    return load_settings(
        data_dir=data_dir, **({"database": {"url": database_url}, "server": {"port": 0, "metrics_port": 0}} | sections)
    )


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """Serve an application on a free port."""
    async with open_application(settings) as application, open_grpc(application) as port:
        target = f"127.0.0.1:{port}"
        async with Pointsman(target, timeout_seconds=30.0) as client:
            yield Running(application, client, target)


async def fill(client: Pointsman) -> None:
    """Bring the small corpus in."""
    report = await client.ingest(
        [corpus_pb2.Document(id=key, title=title, text=text) for key, (title, text) in DOCUMENTS.items()]
    )
    assert report.added == len(DOCUMENTS)


@pytest_asyncio.fixture
async def gateway(database_url: str, tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway without a language model, its corpus filled."""
    async with running(settings_for(database_url, tmp_path)) as served:
        await fill(served.client)
        yield served
