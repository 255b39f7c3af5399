"""[embedding] [llm] [upstream]: the models and the RAG that the gateway calls."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from router.settings.sections import Fraction, Seconds, Section


class EmbeddingSettings(Section):
    """[embedding] the model that turns questions and passages into vectors."""

    model: str = Field(
        "builtin",
        description="builtin (all-MiniLM-L6-v2, int8), a sentence-transformers id or folder (extra `models`), "
        "or openai:NAME for an OpenAI-compatible endpoint.",
    )
    base_url: str = Field("", description="Endpoint of openai:NAME.")
    api_key: SecretStr | None = Field(None, description="Its key.")
    dimensions: int | None = Field(
        None, ge=1, le=16_000, description="Length to ask an endpoint's vectors in; empty = the model's own."
    )
    max_tokens: int | None = Field(
        None,
        ge=32,
        le=1_000_000,
        description="Window of an endpoint's model in tokens; empty = 8191 for text-embedding models, 512 for others.",
    )
    timeout_seconds: Seconds = Field(10.0, description="Longest time of one call to an endpoint.")
    threads: int = Field(1, ge=1, le=256, description="Threads of one question's encoding.")
    ingest_threads: int = Field(2, ge=1, le=256, description="Threads while ingesting.")
    batch_delay_seconds: float = Field(
        0.001, ge=0.0, le=1.0, description="Most delay added to collect concurrent questions into one batch."
    )
    max_batch: int = Field(32, ge=1, le=1024, description="Most questions of one batch.")
    max_queued: int = Field(1024, ge=1, le=100_000, description="Most questions waiting to be encoded.")


class LlmSettings(Section):
    """[llm] any OpenAI-compatible server; without base_url answers are extractive."""

    base_url: str = Field("", description="For instance http://localhost:8000/v1; empty = no language model.")
    api_key: SecretStr | None = Field(None, description="Its key, where it wants one.")
    model: str = Field("", description="The model for every purpose.")
    models: dict[str, str] = Field(
        default_factory=dict,
        description="A model per purpose: answer, judge, plan, control, compress, critique, condense.",
    )
    timeout_seconds: Seconds = Field(60.0, description="Longest time of one call.")
    first_token_timeout_seconds: Seconds = Field(30.0, description="Longest wait for the first token of a stream.")
    idle_timeout_seconds: Seconds = Field(15.0, description="Longest silence within a stream.")
    retries: int = Field(2, ge=0, le=10, description="Retries of a call that failed before any token.")
    retry_budget: Fraction = Field(0.1, description="Retries as a share of calls; beyond it nothing is retried.")
    breaker_failures: int = Field(5, ge=1, le=1000, description="Failures in a row after which it is left alone.")
    breaker_seconds: Seconds = Field(10.0, description="How long it is left alone; then one call tries it.")
    max_concurrency: int = Field(64, ge=1, le=10_000, description="Calls at once; more wait.")
    max_queued: int = Field(256, ge=0, le=100_000, description="Calls that may wait.")
    max_output_tokens: int = Field(1024, ge=16, le=131_072, description="Cap of one answer.")
    context_tokens: int = Field(8192, ge=512, le=2_000_000, description="Most prompt tokens of one call.")
    prices: dict[str, tuple[float, float, float]] = Field(
        default_factory=dict,
        description="US dollars per million tokens by model: [input, cached input, output].",
    )


class UpstreamSettings(Section):
    """[upstream] a RAG endpoint that is there already, as the standard route or where ours fails."""

    url: str = Field(
        "",
        description="For instance http://legacy:8000, or grpc://legacy:50051 (grpcs:// with TLS); empty = none.",
    )
    contract: str = Field(
        "", description="Contract file or shipped name that describes it; needs [route.upstream], for gRPC [[grpc]]."
    )
    path: str = Field(
        "",
        description="Which of the contract's paths, for gRPC package.Service/Method; empty = the first that it has.",
    )
    use: Literal["standard", "fallback"] = Field(
        "fallback",
        description="standard = it is the standard route; fallback = it answers when our model fails before a word.",
    )
    api_key: SecretStr | None = Field(None, description="Sent as a bearer token, where it wants one.")
    ca: str = Field(
        "", description="PEM file of the authorities that vouch for it; empty = the system's, for gRPC those of grpc."
    )
    certificate: str = Field("", description="PEM file of the certificate shown to it, where it wants one.")
    key: str = Field("", description="PEM file of that certificate's key.")
    timeout_seconds: Seconds = Field(60.0, description="Longest time of one answer.")
    connect_timeout_seconds: Seconds = Field(3.0, description="Longest time to connect.")
    first_byte_timeout_seconds: Seconds = Field(20.0, description="Longest wait for the first byte.")
    idle_timeout_seconds: Seconds = Field(15.0, description="Longest silence within an answer.")
    retries: int = Field(1, ge=0, le=5, description="Retries of a call that failed before its first byte.")
    retry_budget: Fraction = Field(0.1, description="Retries as a share of calls; beyond it nothing is retried.")
    breaker_failures: int = Field(5, ge=1, le=1000, description="Failures in a row after which it is left alone.")
    breaker_seconds: Seconds = Field(10.0, description="How long it is left alone; then one call tries it.")
    max_concurrency: int = Field(64, ge=1, le=10_000, description="Calls at once; more are answered without it.")
