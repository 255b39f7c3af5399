"""A whole gateway behind real gRPC, a model behind real HTTP that obeys whatever it reads, and documents that order."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pointsman.client import Pointsman, question
from pointsman.v1 import corpus_pb2, gateway_pb2

from router.application import Application, open_application
from router.process.serving import open_grpc
from router.settings import load_settings
from tests.support.model_server import ModelServer, Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

QUESTION = "How often is the bilge pump at Alder Wharf serviced?"
PLAIN = "The bilge pump at Alder Wharf is serviced every six months."


def asking(route: str, **more: Any) -> gateway_pb2.AnswerRequest:  # noqa: ANN401 - of the client
    """The question, by a route."""
    return question(QUESTION, route=gateway_pb2.Route.Value(f"ROUTE_{route.upper()}"), **more)


@dataclass(frozen=True, slots=True)
class Served:
    """A served application, a client of it, and the model's server."""

    application: Application
    client: Pointsman
    model: ModelServer

    async def bring(self, *texts: str, collection: str = "default") -> None:
        """Ingest documents d0, d1 … of these texts."""
        documents = [
            corpus_pb2.Document(
                id=f"d{number}", title="Bilge pump", uri=f"https://wiki.shop.example/pump/{number}", text=text
            )
            for number, text in enumerate(texts)
        ]
        report = await self.client.ingest(documents, collection=collection)
        assert report.added == len(texts)

    async def answer(self, route: str, **more: Any) -> gateway_pb2.AnswerResponse:  # noqa: ANN401 - of the client
        """Ask for a whole answer; `route` is standard or agentic."""
        return await self.client.answer(asking(route, **more))

    async def stream(self, route: str, **more: Any) -> list[gateway_pb2.Event]:  # noqa: ANN401 - of the client
        """Ask for a stream, to its end."""
        return [event async for event in self.client.stream(asking(route, **more))]

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, 0 where nothing was counted yet."""
        return self.application.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(
    database_url: str, data_dir: Path, script: Script, **sections: dict[str, Any]
) -> AsyncIterator[Served]:
    """Serve on a free port with a model that follows `script`."""
    async with ModelServer(script) as model:
        settings = load_settings(
            data_dir=data_dir,
            **(
                {
                    "database": {"url": database_url},
                    "server": {"port": 0, "metrics_port": 0},
                    "llm": {"base_url": model.base_url, "model": "scripted", "retries": 0},
                }
                | sections
            ),
        )
        async with (
            open_application(settings) as application,
            open_grpc(application) as port,
            Pointsman(f"127.0.0.1:{port}", timeout_seconds=30.0) as client,
        ):
            yield Served(application, client, model)
