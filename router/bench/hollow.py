"""The gateway with nothing behind it: what a call costs beside embedding, database and language model.

Validation, admission, run, features of text and first look, decision, events, metrics, interceptor and wire are
the real ones; whatever embeds (the text model's encoder too), retriever, journal and route answer at once.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from grpc_health.v1.health import aio as health_aio

from router.decide import Policy
from router.gateway import Gateway
from router.grpc.admin_service import AdminService
from router.grpc.admit import everyone
from router.grpc.gateway_service import GatewayService
from router.grpc.server import open_server
from router.journal.store import BegunRun, Journal
from router.parts import GatewayParts
from router.policy import PolicyStore
from router.telemetry.metrics import Metrics
from standard.domain.answer import AnswerSource, Citation, Outcome, StopReason
from standard.domain.event import CitationMade, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.domain.passage import Passage, RetrievedPassage, SearchResult
from standard.domain.text import UntrustedText

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from numpy.typing import NDArray

    from router.routing_models import LoadedModels
    from router.settings import Settings
    from standard.domain.event import Emit, Event
    from standard.domain.passage import Retriever
    from standard.domain.question import Question

_TEXT = "The spare bilge pump is kept in the shed."
_CITATION = Citation("pump#0", "pump", "Spare pump", "file:pump", _TEXT, 0, len(_TEXT), 0, len(_TEXT))
_CANDIDATES = 20
_K = 5


def _first_look(dimensions: int) -> SearchResult:
    """What a first search over a real corpus brings: 20 passages of 150 words with their vectors, in ten documents."""
    random = np.random.default_rng(7)
    vectors = random.normal(0.0, dimensions**-0.5, (_CANDIDATES, dimensions)).astype(np.float32)
    found = tuple(
        RetrievedPassage(
            Passage(
                f"pump{number // 2}#{number}",
                f"pump{number // 2}",
                UntrustedText(f"Spare pump {number // 2}"),
                "file:pump",
                UntrustedText(" ".join([_TEXT] * 15)),
                number,
                "0",
            ),
            0.9 - 0.01 * number,
        )
        for number in range(_CANDIDATES)
    )
    return SearchResult(found[:_K], found, {"spare": 4.0, "bilg": 6.0, "pump": 5.0, "kept": 3.0}, 7000, vectors)


def _without_embedding(models: LoadedModels, dimensions: int) -> LoadedModels:
    """Return the models with everything that embeds replaced by vectors at hand."""
    count = models.text.dimension
    encoded = np.full(count, count**-0.5, dtype=np.float32)
    part = np.full(dimensions, dimensions**-0.5, dtype=np.float32)

    async def embed_many(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.repeat(part[None, :], len(texts), axis=0)

    async def encode(_text: str) -> NDArray[np.float32]:
        return encoded

    return replace(models, encode=encode, embed_many=embed_many)


class _SilentJournal:
    consent = "text"
    lease_seconds = 30.0

    async def begin(self, *_: object) -> BegunRun:
        return BegunRun(1, "bench", "")

    async def append(
        self, run: BegunRun, events: Sequence[Event], *, state: str = "running", trace: str = ""
    ) -> None:
        """Keep nothing."""

    async def renew(self, runs: Sequence[BegunRun]) -> None:
        """There are no leases."""


class _SamePolicy:
    def __init__(self) -> None:
        self._policy = Policy()

    def policy(self, _tenant: str) -> Policy:
        return self._policy


@dataclass(frozen=True, slots=True)
class _SamePassages:
    result: SearchResult

    async def search(self, *_: object, **__: object) -> SearchResult:
        return self.result


async def _answer(
    question: Question, vector: NDArray[np.float32], first: SearchResult, *, emit: Emit, may_escalate: bool
) -> RouteResult:
    del question, vector, first, may_escalate
    await emit(TokenEmitted(_TEXT))
    await emit(CitationMade(0, _CITATION))
    return RouteResult(_TEXT, AnswerSource.EXTRACTIVE, Outcome.ANSWERED, StopReason.SUFFICIENT, (_CITATION,))


@asynccontextmanager
async def open_hollow_gateway(
    settings: Settings, models: LoadedModels | None, dimensions: int
) -> AsyncIterator[tuple[Gateway, GatewayParts]]:
    """Yield the hollow gateway and its parts, not yet served."""
    metrics = Metrics()
    vector = np.full(dimensions, dimensions**-0.5, dtype=np.float32)
    hollow = None if models is None else _without_embedding(models, dimensions)

    async def embed(_text: str) -> NDArray[np.float32]:
        return vector

    journal = cast(Journal, _SilentJournal())
    policies = cast(PolicyStore, _SamePolicy())
    parts = GatewayParts(
        embed=embed,
        retriever=cast("Retriever", _SamePassages(_first_look(dimensions))),
        models=lambda: hollow,
        standard=_answer,
        agentic=_answer,
        has_llm=False,
        journal=journal,
        policies=policies,
        metrics=metrics,
        settings=settings,
    )
    async with Gateway(parts) as gateway:
        yield gateway, parts


@asynccontextmanager
async def open_hollow_grpc(gateway: Gateway, parts: GatewayParts) -> AsyncIterator[int]:
    """Yield the port on which a hollow gateway is served."""
    services = (
        GatewayService(gateway, parts.settings, everyone),
        None,
        AdminService(parts.policies, parts.journal, everyone),
    )
    server_settings = parts.settings.server.model_copy(update={"port": 0})
    async with open_server(server_settings, parts.metrics, services, health_aio.HealthServicer()) as port:
        yield port


@asynccontextmanager
async def open_hollow(settings: Settings, models: LoadedModels | None, dimensions: int) -> AsyncIterator[int]:
    """Yield the port of the hollow gateway."""
    async with (
        open_hollow_gateway(settings, models, dimensions) as (gateway, parts),
        open_hollow_grpc(gateway, parts) as port,
    ):
        yield port
