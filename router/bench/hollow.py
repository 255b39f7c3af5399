"""The gateway with nothing behind it: what a call costs beside embedding, database and language model.

Keys, limits, validation, admission, run, features of text and first look, decision, events, metrics, traces,
interceptors and wire are the real ones; whatever embeds (the text model's encoder too), retriever, journal and route
answer at once. With `standard` a real route stands there, which may call a model.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from grpc_health.v1.health import aio as health_aio

from router.access.limits import TenantLimits
from router.bench.conditions import gate_without_database
from router.decide import Policy
from router.gateway import Gateway
from router.grpc.admin_service import AdminService
from router.grpc.admit import caller
from router.grpc.gateway_service import GatewayService
from router.grpc.server import open_server
from router.journal.store import BegunRun, Journal
from router.parts import GatewayParts
from router.routing.policy import PolicyStore
from router.telemetry.calls import Calls
from router.telemetry.metrics import Metrics
from router.telemetry.tracing import open_tracing
from standard.domain.answer import AnswerSource, Citation, Outcome, StopReason
from standard.domain.event import CitationMade, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.domain.passage import Passage, RetrievedPassage, SearchResult
from standard.domain.text import UntrustedText

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from numpy.typing import NDArray

    from router.access.auth import Gate
    from router.bench.callers import Caller
    from router.parts import RouteHandler
    from router.routing.models import LoadedModels
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

    async def append(self, run: BegunRun, events: Sequence[Event], *, state: str = "running", trace: str = "") -> None:
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


@dataclass(frozen=True, slots=True)
class Hollow:
    """The hollow gateway, not yet served. `caller` has the key that its `gate` asks for; `calls` records traces."""

    gateway: Gateway
    parts: GatewayParts
    gate: Gate
    caller: Caller
    calls: Calls


@asynccontextmanager
async def open_hollow(
    settings: Settings,
    models: LoadedModels | None,
    dimensions: int,
    *,
    standard: Callable[[Metrics], RouteHandler] | None = None,
) -> AsyncIterator[Hollow]:
    """Yield the hollow gateway; `settings` are those of router.bench.conditions."""
    metrics = Metrics()
    vector = np.full(dimensions, dimensions**-0.5, dtype=np.float32)
    hollow = None if models is None else _without_embedding(models, dimensions)
    gate, caller_ = gate_without_database(settings, metrics)

    async def embed(_text: str) -> NDArray[np.float32]:
        return vector

    parts = GatewayParts(
        embed=embed,
        retriever=cast("Retriever", _SamePassages(_first_look(dimensions))),
        models=lambda: hollow,
        standard=_answer if standard is None else standard(metrics),
        agentic=_answer,
        has_llm=standard is not None,
        journal=cast(Journal, _SilentJournal()),
        policies=cast(PolicyStore, _SamePolicy()),
        metrics=metrics,
        settings=settings,
        limits=TenantLimits(settings.limits, metrics),
    )
    async with (
        open_tracing(settings.traces, metrics, content=False) as tracing,
        Gateway(parts) as gateway,
    ):
        yield Hollow(gateway, parts, gate, caller_, Calls(tracing))


@asynccontextmanager
async def open_hollow_grpc(hollow: Hollow) -> AsyncIterator[int]:
    """Yield the port on which a hollow gateway is served over gRPC."""
    parts = hollow.parts
    services = (
        GatewayService(hollow.gateway, parts.settings, caller),
        None,
        AdminService(parts.policies, parts.journal, caller),
    )
    server_settings = parts.settings.server.model_copy(update={"port": 0})
    servicer = health_aio.HealthServicer()
    async with open_server(server_settings, parts.metrics, services, servicer, hollow.gate, calls=hollow.calls) as port:
        yield port


@asynccontextmanager
async def open_hollow_http(hollow: Hollow) -> AsyncIterator[int]:
    """Yield the port on which a hollow gateway is served over HTTP."""
    from router.http.app import HttpApp, own_paths
    from router.http.app import caller as caller_of
    from router.http.asking import HttpParts
    from router.http.observe import ObserveHttp
    from router.http.server import open_http

    async def ready() -> tuple[bool, dict[str, bool]]:
        return True, {}

    parts = hollow.parts
    http_parts = HttpParts(
        hollow.gateway, parts.retriever, parts.embed, parts.settings, caller_of, ready, gate=hollow.gate
    )
    app = HttpApp(http_parts, own_paths(), ObserveHttp(parts.metrics, hollow.calls))
    async with open_http(parts.settings.http, app, grace_seconds=1.0, port=0) as port:
        yield port
