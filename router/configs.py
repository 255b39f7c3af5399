"""From the settings to what each part is configured with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentic.settings import AgenticSettings
from router.decide import CanaryBy, Policy, Rollout
from router.settings import BadSettings
from standard.database.pool import DatabaseConfig
from standard.domain.question import Route
from standard.embedding.config import BUILTIN, EmbeddingConfig
from standard.llm.config import LlmConfig, Price
from standard.llm.protocol import Purpose
from standard.retrieval.retriever import RetrievalSettings
from standard.sandbox.policy import POLICIES, policed
from standard.sandbox.scan import scan_chunk, shipped_scanner
from standard.sandbox.urls import url_policy

if TYPE_CHECKING:
    from router.settings import EmbeddingSettings, Settings
    from standard.corpus.collections import Collection
    from standard.corpus.scan import Scan


def database_config(settings: Settings) -> DatabaseConfig:
    """How to reach PostgreSQL."""
    database = settings.database
    return DatabaseConfig(
        url=database.url.get_secret_value() if database.url and database.url.get_secret_value() else None,
        data_directory=settings.data_dir,
        min_size=database.pool_min,
        max_size=max(database.pool_max, database.pool_min),
        max_waiting=database.max_waiting,
        acquire_timeout=database.acquire_timeout_seconds,
        connect_timeout=database.connect_timeout_seconds,
        statement_timeout=database.statement_timeout_seconds,
        pooler=True if database.transaction_pooling else None,
    )


def embedding_config(settings: Settings) -> EmbeddingConfig:
    """The embedder."""
    return embedder_config(settings.embedding)


def embedder_config(embedding: EmbeddingSettings) -> EmbeddingConfig:
    """An embedder: the gateway's own or that of a table."""
    return EmbeddingConfig(
        model=embedding.model,
        base_url=embedding.base_url,
        api_key=embedding.api_key.get_secret_value() if embedding.api_key else "",
        dimensions=embedding.dimensions,
        max_tokens=embedding.max_tokens,
        timeout_seconds=embedding.timeout_seconds,
        threads=embedding.threads,
        ingest_threads=embedding.ingest_threads,
        batch_delay_seconds=embedding.batch_delay_seconds,
        max_batch=embedding.max_batch,
        max_queued=embedding.max_queued,
    )


def llm_config(settings: Settings) -> LlmConfig | None:
    """The model server, or None where none is configured."""
    llm = settings.llm
    if not llm.base_url:
        return None
    if not llm.model:
        raise BadSettings(["llm.model (POINTSMAN_LLM__MODEL): is empty, though llm.base_url is set; name the model"])
    unknown = sorted(set(llm.models) - {purpose.value for purpose in Purpose})
    if unknown:
        allowed = ", ".join(purpose.value for purpose in Purpose)
        raise BadSettings([f"llm.models: {unknown[0]!r} is no purpose; allowed: {allowed}"])
    return LlmConfig(
        base_url=llm.base_url,
        model=llm.model,
        api_key=llm.api_key.get_secret_value() if llm.api_key else "",
        models={Purpose(name): model for name, model in llm.models.items()},
        prices={model: Price(*price) for model, price in llm.prices.items()},
        first_token_seconds=llm.first_token_timeout_seconds,
        idle_seconds=llm.idle_timeout_seconds,
        retries=llm.retries,
        max_concurrency=llm.max_concurrency,
        max_waiting=llm.max_queued,
        retry_budget=llm.retry_budget,
        breaker_failures=llm.breaker_failures,
        breaker_seconds=llm.breaker_seconds,
    )


def retrieval_settings(settings: Settings) -> RetrievalSettings:
    """The first search."""
    return RetrievalSettings(depth=settings.retrieval.depth, ef_search=settings.retrieval.ef_search)


def agentic_settings(settings: Settings) -> AgenticSettings:
    """The loop's defaults."""
    agentic = settings.agentic
    base = AgenticSettings()
    return replace(
        base,
        max_steps=agentic.max_steps,
        max_tokens=agentic.max_tokens,
        max_seconds=agentic.max_seconds,
        max_cost_usd=agentic.max_cost_usd,
        controller=agentic.controller,
        critique=agentic.critique,
        guards=replace(
            base.guards,
            similarity=agentic.similarity,
            cosine_distance=agentic.cosine_distance,
            distance_calibrated=settings.embedding.model == BUILTIN,
        ),
        compression=replace(base.compression, enabled=agentic.compress),
        # A server that was given more time than usual is a slow one: its short calls are slow as well.
        call_seconds=max(base.call_seconds, settings.llm.timeout_seconds / 2),
        answer_seconds=settings.llm.timeout_seconds,
    )


def allowed_addresses(settings: Settings) -> tuple[str, ...]:
    """Addresses that an answer may name besides its sources'."""
    try:
        url_policy(allowlist=settings.sandbox.allowed_addresses)
    except ValueError as error:
        raise BadSettings([f"sandbox.allowed_addresses (POINTSMAN_SANDBOX__ALLOWED_ADDRESSES): {error}"]) from None
    return settings.sandbox.allowed_addresses


def scan_of(collection: Collection, settings: Settings) -> tuple[Scan, str]:
    """The scan of a collection's passages, under its own policy or the installation's, and the version of both."""
    policy = POLICIES.get(collection.scan_policy) or POLICIES[settings.sandbox.policy]
    rules_version = shipped_scanner().version
    return policed(scan_chunk, policy, rules_version), policy.version(rules_version)


def routing_policy(settings: Settings, model_threshold: float) -> Policy:
    """The policy that is in force until somebody updates it."""
    routing = settings.routing
    return Policy(
        threshold=model_threshold if routing.threshold is None else routing.threshold,
        safe_route=Route(routing.safe_route),
        max_agentic_share=routing.max_agentic_share,
        sticky_sessions=routing.sticky_sessions,
        min_agentic_seconds=routing.min_agentic_seconds,
        expected_agentic_cost_usd=routing.expected_agentic_cost_usd,
        rollout=Rollout(routing.rollout),
        canary_percent=routing.canary_percent,
        canary_by=CanaryBy(routing.canary_by),
        shadow_sample=routing.shadow_sample,
    )
