"""Every setting, in one place.

Order of precedence, highest first: environment `POINTSMAN_<SECTION>__<KEY>`, the file `pointsman.toml` (in the working
directory, or named by `POINTSMAN_CONFIG`), the defaults below. `pointsman config` prints what is in force, secrets
masked; `pointsman config --example` prints a commented file. A bad value stops the start with the key, the problem and
what is allowed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0)]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Section(BaseModel):
    """A section of the settings file; unknown keys are refused so that a typo is seen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(Section):
    """[server] where the gateway listens and how much it takes."""

    host: str = Field("127.0.0.1", description="Address to listen on. Without authentication only loopback is allowed.")
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes behind the ports; worker i has its own metrics on metrics_port + 1 + i.",
    )
    port: Port = Field(50051, description="gRPC port; 0 takes a free one.")
    metrics_host: str = Field(
        "127.0.0.1", description="Address of the metrics, which need no key: open it to the scraper alone."
    )
    metrics_port: Port = Field(9464, description="Prometheus port; 0 takes a free one.")
    max_message_bytes: int = Field(16_777_216, ge=65_536, le=268_435_456, description="Largest message either way.")
    max_inflight: int = Field(
        256, ge=1, le=100_000, description="Answers worked on at once; more wait in the queue, then are refused."
    )
    max_queued: int = Field(1024, ge=0, le=100_000, description="Answers that may wait for a place.")
    queue_timeout_seconds: Seconds = Field(5.0, description="Longest wait for a place before RESOURCE_EXHAUSTED.")
    grace_seconds: Seconds = Field(20.0, description="Time for calls in flight when the server stops.")
    default_timeout_seconds: Seconds = Field(120.0, description="Time limit of a call that brings no deadline.")
    deadline_reserve_seconds: float = Field(
        0.25, ge=0.0, le=60.0, description="Kept back from a caller's deadline for the final answer."
    )
    keepalive_seconds: Seconds = Field(60.0, description="Interval of HTTP/2 pings to clients.")
    min_ping_interval_seconds: Seconds = Field(10.0, description="Clients that ping more often are disconnected.")
    reflection: bool = Field(True, description="Serve gRPC reflection.")


class HttpSettings(Section):
    """[http] the façades over HTTP: the OpenAI API, /query, and contracts of your own."""

    enabled: bool = Field(True, description="Serve HTTP beside gRPC.")
    host: str = Field("127.0.0.1", description="Address to listen on. Without authentication only loopback is allowed.")
    port: Port = Field(8080, description="HTTP port; 0 takes a free one.")
    max_body_bytes: int = Field(4_194_304, ge=1024, le=67_108_864, description="Largest request body.")
    max_connections: int = Field(4096, ge=1, le=100_000, description="Connections at once; more are answered 503.")
    client_timeout_seconds: Seconds = Field(
        30.0, description="Longest time a client may take to send its request, or to take a piece of the answer."
    )
    heartbeat_seconds: Seconds = Field(15.0, description="Longest silence of an event stream before a heartbeat.")
    origins: tuple[str, ...] = Field(
        (), description="Origins whose web pages may call, such as https://intranet.example; those of loopback always."
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="Names by which the server may be called without keys, beside loopback's and the hosts of "
        "http.origins; * = any, behind a proxy that asks for keys.",
    )
    console: bool = Field(True, description="Serve the operator's console at /.")
    contracts: tuple[str, ...] = Field(
        (), description="Contract files, folders of them, or names of shipped ones (langserve, dify, r2r, plain)."
    )


class CertificateSettings(Section):
    """[auth.certificates.NAME] the caller whose client certificate has this name."""

    tenant: str = Field(min_length=1, max_length=128, description="Whose it is.")
    role: Literal["user", "admin", "operator"] = Field("user", description="What it may do.")
    collections: tuple[str, ...] = Field((), description="What a user may see; empty = all of the tenant.")
    groups: tuple[str, ...] = Field((), description="Access groups on documents.")


class AuthSettings(Section):
    """[auth] who may call."""

    mode: Literal["none", "keys"] = Field(
        "none",
        description="none = whoever reaches the gateway is tenant default and may do everything; keys = every call "
        "needs an API key (pointsman keys create).",
    )
    certificates: dict[str, CertificateSettings] = Field(
        default_factory=dict,
        description="With keys and tls.client_ca: callers that their client certificate names, no key needed.",
    )


class TlsSettings(Section):
    """[tls] certificates of gRPC and HTTP; files that change are read anew."""

    certificate: str = Field("", description="PEM file of the certificate and its chain; empty = without TLS.")
    key: str = Field("", description="PEM file of its key, without a passphrase.")
    client_ca: str = Field("", description="PEM file of authorities; clients must bring a certificate of one of them.")
    server_ca: str = Field(
        "", description="PEM file of authorities that client commands trust; empty = those of the system."
    )


class UpstreamSettings(Section):
    """[upstream] a RAG endpoint that is there already, as the standard route or where ours fails."""

    url: str = Field("", description="For instance http://legacy:8000; empty = none.")
    contract: str = Field("", description="Contract file or shipped name that describes it; needs [route.upstream].")
    path: str = Field("", description="Which of the contract's paths; empty = the first with [route.upstream].")
    use: Literal["standard", "fallback"] = Field(
        "fallback",
        description="standard = it is the standard route; fallback = it answers when our model fails before a word.",
    )
    api_key: SecretStr | None = Field(None, description="Sent as a bearer token, where it wants one.")
    timeout_seconds: Seconds = Field(60.0, description="Longest time of one answer.")
    connect_timeout_seconds: Seconds = Field(3.0, description="Longest time to connect.")
    first_byte_timeout_seconds: Seconds = Field(20.0, description="Longest wait for the first byte.")
    idle_timeout_seconds: Seconds = Field(15.0, description="Longest silence within an answer.")
    retries: int = Field(1, ge=0, le=5, description="Retries of a call that failed before its first byte.")
    retry_budget: Fraction = Field(0.1, description="Retries as a share of calls; beyond it nothing is retried.")
    breaker_failures: int = Field(5, ge=1, le=1000, description="Failures in a row after which it is left alone.")
    breaker_seconds: Seconds = Field(10.0, description="How long it is left alone; then one call tries it.")
    max_concurrency: int = Field(64, ge=1, le=10_000, description="Calls at once; more are answered without it.")


class DatabaseSettings(Section):
    """[database] PostgreSQL with pgvector."""

    url: SecretStr | None = Field(
        None, description="postgresql://… of your server; empty = an embedded PostgreSQL in the data directory."
    )
    pool_min: int = Field(1, ge=0, le=1000, description="Connections kept open.")
    pool_max: int = Field(8, ge=1, le=1000, description="Most connections of one process.")
    max_waiting: int = Field(256, ge=1, le=100_000, description="Callers that may wait for a connection.")
    acquire_timeout_seconds: Seconds = Field(5.0, description="Longest wait for a connection.")
    connect_timeout_seconds: Seconds = Field(5.0, description="Longest time to connect.")
    statement_timeout_seconds: Seconds = Field(15.0, description="Longest time of one statement of a question.")
    transaction_pooling: bool = Field(
        False, description="Set behind PgBouncer in transaction mode: no prepared statements."
    )
    accept_old_pgvector: bool = Field(False, description="Run on pgvector below 0.8.4, with a warning.")


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


class RoutingSettings(Section):
    """[routing] the first policy; UpdateRoutingPolicy overrides it at run time."""

    model: str = Field("", description="Folder of a trained routing model; empty = the shipped one.")
    threshold: Fraction | None = Field(
        None, description="complex_probability at or above it is agentic; empty = the model's own."
    )
    safe_route: Literal["standard", "agentic"] = Field(
        "standard", description="Taken where the classifier is not ready, failed, or does not know the language."
    )
    max_agentic_share: Fraction | None = Field(
        None, description="Largest share of a tenant's recent answers that may be agentic; empty = no cap."
    )
    sticky_sessions: bool = Field(False, description="Keep a session on the agentic route once it took it.")
    min_agentic_seconds: float = Field(
        2.0, ge=0.0, description="With less time left, the agentic route is not taken (a language model is in use)."
    )
    expected_agentic_cost_usd: float = Field(
        0.0, ge=0.0, description="With a smaller cost cap, the agentic route is not taken."
    )
    escalate: bool = Field(True, description="Let the standard route hand over when its evidence is insufficient.")
    rollout: Literal["off", "shadow", "canary", "enforce"] = Field(
        "enforce", description="Who may take the agentic route: nobody, nobody but aside, canary_percent, everybody."
    )
    canary_percent: float = Field(0.0, ge=0.0, le=100.0, description="Percentage that may, with rollout = canary.")
    canary_by: Literal["session", "tenant"] = Field("session", description="What that is a percentage of.")
    shadow_sample: Fraction = Field(1.0, description="Share of questions answered aside, with rollout = shadow.")
    shadow_concurrency: int = Field(
        2, ge=1, le=1000, description="Questions answered aside at once; what comes beyond is left out."
    )


class RetrievalSettings(Section):
    """[retrieval] the first search."""

    depth: int = Field(100, ge=10, le=1000, description="Candidates of each leg before fusion.")
    ef_search: int = Field(160, ge=10, le=1000, description="HNSW search breadth.")
    reranker: str = Field(
        "",
        description="A cross-encoder (sentence-transformers id, or a folder) that orders the first search's best; "
        "needs the extra models. Empty: none.",
    )


class AgenticSettings(Section):
    """[agentic] defaults of the loop; a request's budget overrides them."""

    controller: Literal["decide", "plan", "tools", "offline"] = Field(
        "decide", description="Pattern of the loop where a language model is configured; without one it is offline."
    )
    max_steps: int = Field(8, ge=1, le=20, description="Steps of a run.")
    max_tokens: int = Field(60_000, ge=256, le=10_000_000, description="Billed tokens of a run.")
    max_seconds: Seconds = Field(90.0, description="Wall-clock time of a run.")
    max_cost_usd: float = Field(1.0, ge=0.0, le=1000.0, description="US dollars of a run.")
    similarity: Literal["need", "cosine", "off"] = Field(
        "need", description="What a repeated query is: the same need, one within cosine_distance, or the same words."
    )
    cosine_distance: float = Field(0.05, ge=0.0, le=2.0, description="Distance of a repeat under similarity = cosine.")
    compress: bool = Field(True, description="Let a record take the place of passages every three steps.")
    critique: bool = Field(False, description="Check each sentence of an answer before it is shown; costs a call.")


class SandboxSettings(Section):
    """[sandbox] what becomes of passages that address the model, and which addresses an answer may name."""

    policy: Literal["standard", "strict", "audit"] = Field(
        "standard",
        description="standard withholds on structural evidence; strict whatever is flagged; audit nothing that could "
        "be read. A collection may have its own: pointsman scan --collection NAME --policy POLICY.",
    )
    allowed_addresses: tuple[str, ...] = Field(
        (),
        description="Addresses that answers may name besides their sources' own: scheme://host/path, and all below.",
    )


class TableSettings(Section):
    """[tables.NAME] a table that somebody else fills, searched as the collection NAME (docs/tables.md)."""

    url: SecretStr | None = Field(None, description="Its database, a read-only role is enough; empty = the gateway's.")
    layout: Literal["table", "langchain", "langchain-pgvectorstore", "llamaindex", "haystack"] = Field(
        "table", description="The library that made it; table = your own columns, named below."
    )
    table: str = Field("", description="Its name, or schema.name; empty = as the layout has it.")
    collection: str = Field("", description="The collection in langchain_pg_collection.")
    id: str = Field("", description="A unique column; empty = the primary key.")
    content: str = Field("", description="The column with the text of a passage.")
    embedding: str = Field("", description="The vector or halfvec column; empty = the only one.")
    document_id: str | tuple[str, ...] = Field(
        (), description='Column or column->key, or several that are tried in order: ["meta->source", "id"].'
    )
    title: str | tuple[str, ...] = Field((), description="As document_id.")
    uri: str | tuple[str, ...] = Field((), description="As document_id.")
    position: str | tuple[str, ...] = Field((), description="Number of a passage in its document; as document_id.")
    metadata: str = Field("", description="A json or jsonb column, shown with a passage and filtered by.")
    filters: dict[str, str] = Field(default_factory=dict, description="Columns to filter by: key = column.")
    only: dict[str, str | float | bool] = Field(
        default_factory=dict, description="Values that rows must have: column = value."
    )
    tenant: str = Field("default", min_length=1, description="The tenant whose table it is.")
    tenant_column: str = Field("", description="The column that names each row's tenant, instead.")
    groups: str | tuple[str, ...] = Field((), description="A row's access groups: a text[] column or a json array.")
    tsvector: str = Field("", description="A tsvector column; empty = the layout's, or whichever has an index.")
    text_config: str = Field("", description="Its text search configuration; empty = as the column was made.")
    lexical: bool = Field(True, description="Look words up where there is a text index.")
    distance: Literal["", "cosine", "inner_product", "l2"] = Field("", description="Empty = that of the index.")
    nulls: Literal["refuse", "skip"] = Field("refuse", description="What is done about rows without an embedding.")
    embedder: EmbeddingSettings | None = Field(
        None, description="The model it was filled with, keys as in [embedding]; empty = the gateway's."
    )
    evidence: bool = Field(
        False,
        description="With another model: embed what is found with the gateway's own as well, so that it counts for the "
        "route; takes time where a passage is new.",
    )


class JournalSettings(Section):
    """[journal] what is kept of runs."""

    questions: Literal["text", "hash", "nothing"] = Field(
        "text", description="What is kept of questions, queries and answers; hash and nothing make a run unreplayable."
    )
    retention_days: float = Field(30.0, gt=0.0, le=3650.0, description="Runs older than this are deleted.")
    lease_seconds: float = Field(
        30.0, ge=1.0, le=3600.0, description="A run whose process died can be taken over by another after this long."
    )
    detach: bool = Field(False, description="Let a run finish when its last reader has gone.")


class TenantLimitSettings(Section):
    """[limits.tenants.NAME] the limits of one tenant; what is not given is the default of [limits]."""

    requests_per_minute: int | None = Field(None, ge=1, le=10_000_000, description="Calls a minute; empty = no limit.")
    concurrent: int | None = Field(None, ge=1, le=100_000, description="Calls at once in a process; empty = no limit.")
    tokens_per_day: int | None = Field(
        None, ge=0, le=1_000_000_000_000, description="Billed tokens of language models a day; empty = no limit."
    )
    usd_per_day: float | None = Field(None, ge=0.0, le=1_000_000.0, description="US dollars a day; empty = no limit.")


class LimitSettings(TenantLimitSettings):
    """[limits] what one request may bring, and what a tenant may use."""

    redis_url: SecretStr | None = Field(
        None, description="redis://… where replicas share the counts (extra `redis`); empty = each counts its own."
    )
    tenants: dict[str, TenantLimitSettings] = Field(
        default_factory=dict, description="Limits of single tenants: [limits.tenants.NAME]."
    )
    question_chars: int = Field(8192, ge=64, le=1_000_000, description="Longest question, in code points.")
    history_turns: int = Field(200, ge=0, le=10_000, description="Most turns of history.")
    turn_chars: int = Field(32_768, ge=64, le=10_000_000, description="Longest turn, in code points.")
    document_bytes: int = Field(10_485_760, ge=1024, le=268_435_456, description="Largest document.")

    def of(self, tenant: str) -> TenantLimitSettings:
        """The limits of a tenant; what its own section leaves out is the default."""
        own = self.tenants.get(tenant)
        if own is None:
            return self
        return TenantLimitSettings.model_construct(
            **{
                name: getattr(own if name in own.model_fields_set else self, name)
                for name in TenantLimitSettings.model_fields
            }
        )


class CanarySettings(Section):
    """[canary] golden questions, asked on a schedule by every server; pointsman_canary_ok tells how it went."""

    file: str = Field(
        "",
        description='JSONL of {"id", "question", "supporting_ids": [...]}, at most 100; empty = no canary. '
        "A question passes when all those documents are cited.",
    )
    collection: str = Field("default", min_length=1, description="Collection that they are asked in.")
    interval_seconds: Seconds = Field(300.0, description="Pause between two rounds.")
    timeout_seconds: Seconds = Field(60.0, description="Time limit of one question.")


class LogSettings(Section):
    """[log] structured logs on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe level shown.")
    format: Literal["auto", "json", "console"] = Field("auto", description="auto = console on a terminal, else json.")


class Settings(BaseSettings):
    """All of it. `data_dir` holds the embedded database, the lock and the caches."""

    model_config = SettingsConfigDict(
        env_prefix="POINTSMAN_", env_nested_delimiter="__", extra="forbid", frozen=True, env_file=None
    )

    data_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("pointsman", appauthor=False)),
        description="Where everything that is kept lies: POINTSMAN_DATA_DIR.",
    )
    config: Path | None = Field(None, description="The settings file in use: POINTSMAN_CONFIG.")
    server: ServerSettings = ServerSettings.model_construct()
    http: HttpSettings = HttpSettings.model_construct()
    tls: TlsSettings = TlsSettings.model_construct()
    auth: AuthSettings = AuthSettings.model_construct()
    upstream: UpstreamSettings = UpstreamSettings.model_construct()
    database: DatabaseSettings = DatabaseSettings.model_construct()
    embedding: EmbeddingSettings = EmbeddingSettings.model_construct()
    llm: LlmSettings = LlmSettings.model_construct()
    routing: RoutingSettings = RoutingSettings.model_construct()
    retrieval: RetrievalSettings = RetrievalSettings.model_construct()
    agentic: AgenticSettings = AgenticSettings.model_construct()
    sandbox: SandboxSettings = SandboxSettings.model_construct()
    tables: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")], TableSettings] = Field(
        default_factory=dict, description="Tables of your own."
    )
    journal: JournalSettings = JournalSettings.model_construct()
    limits: LimitSettings = LimitSettings.model_construct()
    canary: CanarySettings = CanarySettings.model_construct()
    log: LogSettings = LogSettings.model_construct()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is the base class's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments of the command line, then the environment, then the file."""
        sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, env_settings)
        path = config_path()
        return (*sources, TomlConfigSettingsSource(settings_cls, toml_file=path)) if path else sources


class BadSettings(Exception):
    """A setting is wrong; `problems` holds one line each: key, problem, what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def config_path() -> Path | None:
    """The settings file in force: POINTSMAN_CONFIG, else ./pointsman.toml where it exists."""
    named = os.environ.get("POINTSMAN_CONFIG", "")
    if named:
        path = Path(named)
        if not path.is_file():
            raise BadSettings([f"POINTSMAN_CONFIG: no file {path}"])
        return path
    path = Path("pointsman.toml")
    return path if path.is_file() else None


def load_settings(**overrides: Any) -> Settings:  # noqa: ANN401 - values are validated by the model
    """Read and check the settings; `overrides` are sections or keys that win over everything.

    Raises BadSettings with every problem found.
    """
    unknown = [
        f"{name}: there is no section [{section}]; there are {', '.join(_sections())}"
        for name in sorted(os.environ)
        if (section := _section_of(name)) and section not in _sections()
    ]
    if unknown:
        raise BadSettings(unknown)
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise BadSettings([_problem(dict(item)) for item in error.errors()]) from None
    except (SettingsError, ValueError) as error:
        raise BadSettings([f"{config_path() or 'settings'}: {error}"]) from None


def _section_of(variable: str) -> str:
    """The section that POINTSMAN_<SECTION>__<KEY> names, "" for another variable."""
    section, delimiter, _ = variable.removeprefix("POINTSMAN_").partition("__")
    return section.lower() if delimiter and variable.startswith("POINTSMAN_") else ""


def _sections() -> list[str]:
    return [name for name in Settings.model_fields if name not in {"data_dir", "config"}]


def _problem(item: dict[str, Any]) -> str:
    path = [str(part) for part in item["loc"]]
    key = ".".join(path)
    variable = "POINTSMAN_" + "__".join(part.upper() for part in path)
    given = item.get("input")
    # A misspelt key may be that of a secret, and a whole section may hold one: neither is shown.
    secret = item["type"] == "extra_forbidden" or (path and path[-1] in {"api_key", "url", "redis_url"})
    plain = isinstance(given, str | int | float | bool) and not secret
    message = item["msg"]
    if item["type"] == "extra_forbidden" and len(path) == 2:
        section = Settings.model_fields[path[0]].annotation
        if isinstance(section, type) and issubclass(section, Section):
            message = f"there is no such key; [{path[0]}] has {', '.join(section.model_fields)}"
    return f"{key} ({variable}): {message}" + (f"; given: {given!r:.80}" if plain else "")


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as plain JSON values, secrets masked."""
    return settings.model_dump(mode="json")


def example_toml() -> str:
    """A commented settings file with every key and its default."""
    lines = ["# pointsman.toml: every key with its default. Environment POINTSMAN_<SECTION>__<KEY> wins over it.", ""]
    for name, field in Settings.model_fields.items():
        if name == "config":
            continue
        if name == "tables":
            lines += ["", *_example_table()]
            continue
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            lines += ["", f"[{name}]"]
            for key, inner in section.model_fields.items():
                default = inner.get_default(call_default_factory=True)
                lines += [f"# {inner.description}", f"{'# ' if default is None else ''}{key} = {_toml(default)}"]
        else:
            lines += [
                f"# {field.description}",
                f"# {name} = {_toml(str(field.get_default(call_default_factory=True)))}",
            ]
    return "\n".join(lines) + "\n"


def _example_table() -> list[str]:
    """A section that is commented out as a whole: the keys of a table, each once."""
    lines = ["# [tables.NAME]  # a table that somebody else fills, as the collection NAME; see docs/tables.md"]
    for key, field in TableSettings.model_fields.items():
        lines += [f"# # {field.description}", f"# {key} = {_toml(field.get_default(call_default_factory=True))}"]
    return lines


def _toml(value: object) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
