"""[routing] [retrieval] [agentic] [sandbox]: how a question becomes an answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from router.settings.sections import Fraction, Seconds, Section


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
    evidence: bool = Field(
        False,
        description="In collections that another model embedded: embed what is found with the gateway's own too, so "
        "that it counts for the route; takes time where a passage is new (docs/corpus.md).",
    )
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
