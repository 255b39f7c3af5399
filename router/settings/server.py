"""[server] [http] [auth] [tls] [limits]: where the gateway listens, who may call, and how much."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from router.settings.sections import Port, Seconds, Section


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
