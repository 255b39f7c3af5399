"""A whole gateway behind a real HTTP server on a free port, over a fresh database with a small corpus."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import pytest_asyncio

from router.application import Application, open_application
from router.process.serving import open_http_beside
from router.settings import Settings, load_settings
from standard.corpus.document import SourceDocument
from tests.support.corpora import stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DOCUMENTS = {
    "pump": ("Spare pump", "The spare bilge pump is kept in the shed at Alder Wharf. The dockmaster signs for it."),
    "dockmaster": ("People at Alder Wharf", "The dockmaster of Alder Wharf is Edda Quill. Her deputy is Ove Marsh."),
    "tide": ("Tide table", "High water at Alder Wharf comes forty minutes after high water at Cold Haven."),
    "lantern": ("Lantern", "The harbour lantern burns paraffin. It is lit at dusk and put out at sunrise."),
}
WHERE = "Where is the spare bilge pump kept?"


class Served:
    """An application served over HTTP, and a plain client of it."""

    def __init__(self, application: Application, port: int, client: httpx2.AsyncClient) -> None:
        self.application = application
        self.port = port
        self.client = client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def post(self, path: str, body: object, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(path, json=body, headers=named)


def settings_for(database_url: str, data_dir: Path, **sections: dict[str, Any]) -> Settings:
    given: dict[str, dict[str, Any]] = {
        "database": {"url": database_url},
        "server": {"port": 0, "metrics_port": 0, "grace_seconds": 1.0},
        "http": {"port": 0},
    }
    for name, section in sections.items():
        given[name] = given.get(name, {}) | section
    return load_settings(data_dir=data_dir, **given)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Served]:
    """Serve an application over HTTP on a free port, its corpus filled."""
    async with open_application(settings) as application, open_http_beside(application) as port:
        documents = [
            SourceDocument(key, title, text, uri=f"kb/{key}.md" if key != "tide" else "", metadata={"kind": "note"})
            for key, (title, text) in DOCUMENTS.items()
        ]
        await application.ingest("default", "default", stream(documents), prune=False)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
            yield Served(application, port, client)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Without a language model; one for all tests of a module, which run on the module's event loop."""
    async with serving(settings_for(module_database_url, tmp_path_factory.mktemp("served"))) as opened:
        yield opened
