"""The composition root: settings in, a working gateway out. Nothing else constructs parts.

async with open_application(settings) as application:     # database, embedder, models, gateway
    ...

router.process.serving puts it behind gRPC, HTTP and metrics.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from grpc_health.v1.health import aio as health_aio

from agentic.run import AgenticParts
from router.access.auth import Gate, KeyRing
from router.access.certified import certified_callers
from router.access.keys import find_key
from router.access.limits import TenantLimits
from router.answering import agentic_handler, make_agentic, resume_handler, standard_handler
from router.configs import (
    agentic_settings,
    allowed_addresses,
    database_config,
    embedding_config,
    llm_config,
    retrieval_settings,
    routing_policy,
    scan_of,
)
from router.embedders import configure, own_spec
from router.gateway import Gateway
from router.journal.store import Journal
from router.parts import GatewayParts
from router.process.health import Health, Probe
from router.reembed import Reembeddings
from router.rollout.shadow import Shadow
from router.routing.models import ModelLoader
from router.routing.policy import PolicyStore
from router.style import styles
from router.tables import open_tables
from router.telemetry.calls import Calls
from router.telemetry.drift import DriftWatch
from router.telemetry.llm import LlmMetrics
from router.telemetry.metrics import Metrics
from router.telemetry.retrievals import TracedLibrary, TracedRetriever
from standard import semconv
from standard.corpus.collections import EmbedderIdentity, ensure_collection, get_collection
from standard.corpus.embedders import Embedders
from standard.corpus.ingest import IngestOptions, IngestReport, ingest
from standard.database.migrate import migrate
from standard.database.pool import database_url, make_pool, probe, translated_errors
from standard.domain.errors import DatabaseUnavailable, NotFound
from standard.embedding.factory import open_embedder
from standard.foreign.dispatch import LibraryByCollection, RetrieverByCollection
from standard.foreign.evidence import EvidenceVectors
from standard.llm.client import OpenAiLlm
from standard.retrieval.reader import CorpusReader
from standard.retrieval.retriever import CorpusRetriever
from standard.sandbox.canary import draw_canary
from standard.sandbox.guarded_llm import GuardedLlm
from standard.spans import span

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from agentic.library import Embed, Library
    from router.access.keys import StoredKey
    from router.parts import RouteHandler
    from router.settings import Settings
    from router.upstream.client import UpstreamClient
    from standard.corpus.ingest import IngestProgress, Source
    from standard.database.pool import Pool
    from standard.domain.passage import Retriever
    from standard.embedding.protocol import Embedder
    from standard.foreign.dispatch import Tables
    from standard.llm.protocol import Llm, Purpose
    from standard.spans import Value

_log = structlog.get_logger("pointsman.application")
_MIGRATE_SECONDS = 300.0
_PURGE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Application:
    """Everything that works together in one process.

    `retriever` searches the gateway's own corpus; `passages` that and the `tables` of one's own, reranked where a
    reranker is configured. `standard` is the standard route, an upstream's where the settings say so.
    """

    settings: Settings
    pool: Pool
    embedder: Embedder
    embed: Callable[[str], Awaitable[NDArray[np.float32]]]
    retriever: CorpusRetriever
    gateway: Gateway
    policies: PolicyStore
    journal: Journal
    models: ModelLoader
    llm: OpenAiLlm | None
    agentic: AgenticParts
    metrics: Metrics
    health: Health
    drift: DriftWatch
    limits: TenantLimits
    gate: Gate
    passages: Retriever
    tables: Tables
    standard: RouteHandler
    reembeddings: Reembeddings
    calls: Calls

    @property
    def embedder_identity(self) -> EmbedderIdentity:
        """What collections remember of the embedder."""
        return EmbedderIdentity(self.embedder.id, self.embedder.checksum, self.embedder.dimensions)

    async def ingest(
        self,
        tenant: str,
        collection: str,
        incoming: Source,
        *,
        prune: bool,
        progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        """Ingest into a collection, which is made when it is missing; a table of one's own is refused."""
        self.tables.refuse(tenant, collection, "ingest")
        try:
            found = await get_collection(self.pool, tenant, collection)
        except NotFound:
            found = await ensure_collection(self.pool, tenant, collection, embedder=self.embedder_identity)
        scan, version = scan_of(found, self.settings)
        return await ingest(
            self.pool,
            tenant,
            collection,
            incoming,
            self.embedder,
            options=IngestOptions(prune=prune, max_bytes=self.settings.limits.document_bytes),
            scan=scan,
            scan_version=version,
            progress=progress,
            embedder_of=lambda of: self.reembeddings.embedders.of(of.embedder, of.embedder_spec),
        )


@asynccontextmanager
async def open_application(settings: Settings, metrics: Metrics | None = None) -> AsyncIterator[Application]:
    """Yield the parts, opened in the order in which they need each other and closed in reverse."""
    metrics = metrics or Metrics()
    async with AsyncExitStack() as stack:
        calls = await _calls(settings, metrics, stack)  # first, so that what ends last is still sent
        embedder, pool = await _open_embedder_and_pool(settings, stack)
        embed_queries = _embedding(embedder)

        async def embed(text: str) -> NDArray[np.float32]:
            vector: NDArray[np.float32] = (await embed_queries([text]))[0]
            return vector

        embedders = await stack.enter_async_context(Embedders(embedder, own_spec(settings), configure(settings)))
        retriever = CorpusRetriever(
            pool,
            embedder_id=embedder.id,
            embedder_checksum=embedder.checksum,
            settings=retrieval_settings(settings),
            embedder_of=embedders.of,
            evidence=EvidenceVectors(embedder.embed_queries) if settings.retrieval.evidence else None,
        )
        tables = await open_tables(settings, pool, embedder, stack)
        searched = RetrieverByCollection(retriever, tables) if tables.by_name else retriever
        passages = await _reranked(searched, settings, stack)
        reader = CorpusReader(pool, retriever, scan_policy=settings.sandbox.policy)
        library: Library = LibraryByCollection(reader, tables) if tables.by_name else reader
        if settings.traces.endpoint:
            passages, library = TracedRetriever(passages), TracedLibrary(library)
        config = llm_config(settings)
        llm = None if config is None else await stack.enter_async_context(OpenAiLlm(config, LlmMetrics(metrics)))
        asked = None if llm is None else GuardedLlm(llm, draw_canary(), lambda purpose: _leaked(metrics, purpose))
        models = ModelLoader(settings.routing.model, embedder, embed_queries)
        models.load()
        journal = Journal(
            pool,
            consent=settings.journal.questions,
            owner=f"{socket.gethostname()}:{os.getpid()}",
            lease_seconds=settings.journal.lease_seconds,
        )
        limits = TenantLimits(settings.limits, metrics)
        stack.push_async_callback(limits.close)
        policies = PolicyStore(pool, routing_policy(settings, models.threshold))
        await policies.refresh()
        agentic = make_agentic(
            library,
            embed_queries,
            asked,
            agentic_settings(settings),
            settings.llm.max_output_tokens,
            # Checkpoints hold texts, so consent to keep them is consent to both; without a model none are worth it.
            pool if llm is not None and journal.consent == "text" else None,
            allowed_addresses(settings),
        )
        drift = DriftWatch(models.current, metrics)
        upstream = await _upstream(settings, stack)
        standard = _standard(asked, upstream, embed_queries, settings, metrics)
        parts = GatewayParts(
            embed=embed,
            retriever=passages,
            models=models.current,
            standard=standard,
            agentic=agentic_handler(agentic),
            has_llm=llm is not None,
            journal=journal,
            policies=policies,
            metrics=metrics,
            settings=settings,
            resume=resume_handler(agentic),
            drift=drift,
            limits=limits,
            llm=asked,
            style=styles(tables, retriever.directory),
            shadow=Shadow(
                agentic_handler(agentic, aside=True),
                pool,
                consent=journal.consent,
                concurrency=settings.routing.shadow_concurrency,
                timeout_seconds=settings.server.default_timeout_seconds,
            ),
        )
        gateway = await stack.enter_async_context(Gateway(parts))
        probes = _probes(pool, embed, models, llm, upstream, limits)
        health = Health(probes, health_aio.HealthServicer(), metrics)
        yield Application(
            settings,
            pool,
            embedder,
            embed,
            retriever,
            gateway,
            policies,
            journal,
            models,
            llm,
            agentic,
            metrics,
            health,
            drift,
            limits,
            Gate(key_ring(pool) if settings.auth.mode == "keys" else None, limits, certified_callers(settings)),
            passages,
            tables,
            standard,
            Reembeddings(pool, embedders, settings, retriever, embed),
            calls,
        )


async def _calls(settings: Settings, metrics: Metrics, stack: AsyncExitStack) -> Calls:
    """What keeps the record of calls, with their spans where traces are sent anywhere."""
    traces, access = settings.traces, settings.log.access
    if not traces.endpoint:
        return Calls(None, access)
    from router.telemetry.tracing import open_tracing

    content = traces.content and settings.journal.questions == "text"
    if content != traces.content:
        _log.warning("traces hold no content, since journal.questions is not text")
    return Calls(await stack.enter_async_context(open_tracing(traces, metrics, content=content)), access)


def _embedding(embedder: Embedder) -> Embed:
    """The embedder's questions as spans; other callers' questions of the same batch are not in them."""
    name = f"{semconv.EMBEDDINGS} {embedder.id}"
    attributes: dict[str, Value] = {
        semconv.OPERATION: semconv.EMBEDDINGS,
        semconv.PROVIDER: semconv.OPENAI if embedder.id.startswith("openai:") else "pointsman",
        semconv.REQUEST_MODEL: embedder.id,
        semconv.DIMENSIONS: embedder.dimensions,
    }

    async def embed_queries(texts: Sequence[str]) -> NDArray[np.float32]:
        with span(name, attributes) as opened:
            opened.set("pointsman.embeddings.texts", len(texts))
            return await embedder.embed_queries(texts)

    return embed_queries


async def _reranked(passages: Retriever, settings: Settings, stack: AsyncExitStack) -> Retriever:
    """The retriever with the configured cross-encoder behind it, itself where there is none.

    Raises FailedPrecondition without the extra `models`, EmbedderUnavailable where the model cannot be loaded.
    """
    model = settings.retrieval.reranker
    if not model:
        return passages
    from standard.retrieval.rerank import CrossEncoderScorer, RerankingRetriever

    scorer = await asyncio.to_thread(CrossEncoderScorer, model, threads=settings.embedding.threads)
    stack.push_async_callback(scorer.close)
    return RerankingRetriever(passages, scorer)


def _probes(
    pool: Pool,
    embed: Callable[[str], Awaitable[NDArray[np.float32]]],
    models: ModelLoader,
    llm: OpenAiLlm | None,
    upstream: UpstreamClient | None,
    limits: TenantLimits,
) -> dict[str, Probe]:
    async def embedder() -> None:
        await embed("ready?")

    async def classifier() -> None:
        models.require()

    probes = {
        "database": Probe(lambda: probe(pool), essential=True),
        "embedder": Probe(embedder, essential=True),
        "classifier": Probe(classifier),
    }
    if llm is not None:
        probes["llm"] = Probe(lambda: llm.list_models(2.0))
    if upstream is not None:
        probes["upstream"] = Probe(upstream.alive)
    if limits.counts.are_shared:
        probes["redis"] = Probe(limits.counts.probe)
    return probes


def key_ring(pool: Pool, local: str = "") -> KeyRing:
    """Return the ring of the database's API keys; `local` is one more, that of a server within one command."""

    async def find(key_id: str) -> StoredKey | None:
        return await find_key(pool, key_id)

    return KeyRing(find, local=local)


async def _upstream(settings: Settings, stack: AsyncExitStack) -> UpstreamClient | None:
    """The existing RAG endpoint, where one is configured."""
    if not settings.upstream.url:
        return None
    from router.upstream.opening import open_upstream

    return await stack.enter_async_context(open_upstream(settings.upstream))


def _standard(
    llm: Llm | None, upstream: UpstreamClient | None, embed: Embed, settings: Settings, metrics: Metrics
) -> RouteHandler:
    """The standard route: our own, an upstream before it, or an upstream behind it."""
    ours = standard_handler(llm, embed, settings, metrics)
    if upstream is None:
        return ours
    from router.upstream.route import upstream_fallback, upstream_first

    if settings.upstream.use == "standard":
        return upstream_first(upstream, ours)
    return upstream_fallback(upstream, ours, standard_handler(None, embed, settings, metrics))


def _leaked(metrics: Metrics, purpose: Purpose) -> None:
    """A reply of control repeated its prompt and was not used: a document may have asked for it."""
    metrics.guard_trips.labels("prompt_leak").inc()
    _log.warning("a reply of the language model repeated its instructions and was not used", purpose=purpose.value)


async def _open_embedder_and_pool(settings: Settings, stack: AsyncExitStack) -> tuple[Embedder, Pool]:
    """The two slow starts at once: loading the model and starting or reaching PostgreSQL, which is then migrated."""
    config = database_config(settings)

    async def database() -> Pool:
        url = await stack.enter_async_context(database_url(config))
        try:
            async with asyncio.timeout(_MIGRATE_SECONDS):
                report = await migrate(url, allow_old_pgvector=settings.database.accept_old_pgvector)
        except TimeoutError:
            raise DatabaseUnavailable(f"the migrations did not end within {_MIGRATE_SECONDS:.0f} s") from None
        for warning in report.warnings:
            _log.warning("database", warning=warning)
        pool = make_pool(url, config)
        with translated_errors():
            await pool.open(wait=True, timeout=config.connect_timeout)
        stack.push_async_callback(pool.close)
        return pool

    embedder = await stack.enter_async_context(open_embedder(embedding_config(settings)))
    return embedder, await database()
