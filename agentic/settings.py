"""Settings of the agentic route, resolved with a request's budget into the limits of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from standard.domain.question import Budget

MAX_STEPS = 20
"""No run takes more retrieval steps than this, whatever a request or a setting says."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """How the guards decide.

    similarity: `need` compares needs (equal facts first, then a calibrated distance), `cosine` is the plain rule that
    refuses a query within `cosine_distance` (0-2) of an earlier one, `off` compares nothing but normalised text.
    distance_calibrated: the embedder is the one that the needs' distances are calibrated for; if not, only queries
    whose words all answer each other are repeats. max_refusals_in_row (>= 2): so many refused proposals of any kind in
    a row end the search.
    max_similar_in_row (>= 1): so many repeats in a row end the search. max_stale_steps (>= 1): so many steps in a row
    that bring nothing new end it. max_questions (>= 0): how often a run may ask the user. check_references: look up
    names and numbers that nothing read so far contains before searching for them.
    """

    similarity: Literal["need", "cosine", "off"] = "need"
    cosine_distance: float = 0.05
    distance_calibrated: bool = True
    max_refusals_in_row: int = 3
    max_similar_in_row: int = 2
    max_stale_steps: int = 2
    max_questions: int = 2
    check_references: bool = True


@dataclass(frozen=True, slots=True)
class CompressionSettings:
    """When a record replaces raw passages: every `every_steps` (>= 1) steps once `min_passages` full ones are held."""

    enabled: bool = True
    every_steps: int = 3
    min_passages: int = 4


@dataclass(frozen=True, slots=True)
class AgenticSettings:
    """Defaults of the agentic route; a request's budget overrides the first four.

    max_steps 1-20: retrieval actions, the first retrieval is step 1. max_tokens >= 256: billed tokens in and out.
    max_seconds > 0: wall clock. max_cost_usd >= 0 or None: no cap. The reserves are kept back for the final answer
    (each at most half of its cap): no other call starts once only the reserve is left. controller: the pattern of the
    loop where an LLM is at hand; without one it is always the offline controller. sufficient_score (0-1): a judgement
    at or above it counts as sufficient. abstain_score (0-1): without an LLM, evidence below it ends unanswerable.
    critique: check each sentence of the answer against its sources. call_seconds: longest wait for one call of control;
    answer_seconds: for the final answer.
    """

    max_steps: int = 8
    max_tokens: int = 40_000
    max_seconds: float = 60.0
    max_cost_usd: float | None = None
    answer_reserve_tokens: int = 4_000
    answer_reserve_seconds: float = 15.0
    answer_reserve_cost_usd: float = 0.0
    controller: Literal["decide", "plan", "tools", "offline"] = "decide"
    sufficient_score: float = 0.8
    abstain_score: float = 0.2
    critique: bool = False
    call_seconds: float = 30.0
    answer_seconds: float = 60.0
    guards: GuardSettings = GuardSettings()
    compression: CompressionSettings = CompressionSettings()


@dataclass(frozen=True, slots=True)
class Limits:
    """The caps of one run and what of each is kept back for the final answer. None = no cap."""

    max_steps: int
    max_tokens: int
    max_seconds: float
    max_cost_usd: float | None
    reserve_tokens: int
    reserve_seconds: float
    reserve_cost_usd: float


def resolve_limits(settings: AgenticSettings, budget: Budget) -> Limits:
    """The smaller of what a request asks for and what the settings allow, per cap; reserves at most half of each cap.

    A request may raise max_steps up to MAX_STEPS, since it pays for it; it may not raise the other caps.
    """
    steps = settings.max_steps if budget.max_steps is None else budget.max_steps
    tokens = settings.max_tokens if budget.max_tokens is None else min(budget.max_tokens, settings.max_tokens)
    seconds = settings.max_seconds if budget.max_seconds is None else min(budget.max_seconds, settings.max_seconds)
    costs = [cost for cost in (settings.max_cost_usd, budget.max_cost_usd) if cost is not None]
    cost = min(costs) if costs else None
    return Limits(
        max_steps=max(1, min(steps, MAX_STEPS)),
        max_tokens=tokens,
        max_seconds=seconds,
        max_cost_usd=cost,
        reserve_tokens=min(settings.answer_reserve_tokens, tokens // 2),
        reserve_seconds=min(settings.answer_reserve_seconds, seconds / 2),
        reserve_cost_usd=0.0 if cost is None else min(settings.answer_reserve_cost_usd, cost / 2),
    )
