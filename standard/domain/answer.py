"""Answers, their citations, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from standard.domain.question import Route


class AnswerSource(StrEnum):
    """Who wrote the words of an answer."""

    GENERATED = "generated"
    EXTRACTIVE = "extractive"
    UPSTREAM = "upstream"


class Outcome(StrEnum):
    """How a run ended, for the one who asked."""

    ANSWERED = "answered"
    ANSWERED_WITH_CAVEAT = "answered_with_caveat"
    NEEDS_CLARIFICATION = "needs_clarification"
    UNANSWERABLE = "unanswerable"
    BLOCKED = "blocked"


class StopReason(StrEnum):
    """Why a run ended."""

    SUFFICIENT = "sufficient"
    STEP_BUDGET = "step_budget"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - a budget of tokens, no secret
    TIME_BUDGET = "time_budget"
    COST_BUDGET = "cost_budget"
    NO_PROGRESS = "no_progress"
    NO_EVIDENCE = "no_evidence"
    NEEDS_INPUT = "needs_input"
    LLM_UNAVAILABLE = "llm_unavailable"
    OUTPUT_BLOCKED = "output_blocked"


class DecisionReason(StrEnum):
    """What decided the route: the label `reason` of pointsman_routing_decisions_total."""

    CLASSIFIER = "classifier"
    EVIDENCE = "evidence"
    FORCED = "forced"
    STICKY = "sticky"
    CAP = "cap"
    BUDGET = "budget"
    FALLBACK = "fallback"
    LANGUAGE = "language"
    ROLLOUT = "rollout"


@dataclass(frozen=True, slots=True)
class Decision:
    """The first choice of route and what it rests on.

    Probabilities (0-1) that the question needs the agentic route: by text alone, by evidence of the first
    retrieval alone, and combined, which is what `threshold` is compared with. None where that model did not speak.
    """

    route: Route
    reason: DecisionReason
    complex_probability: float | None
    threshold: float
    text_probability: float | None = None
    evidence_probability: float | None = None
    model_version: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """Part of an answer and the part of a passage that supports it; spans in code points, half-open.

    `quote` is verbatim passage text, equal to passage[passage_start:passage_end]. `moved`: the model named another
    passage, which bears nothing of the claim out.
    """

    passage_id: str
    document_id: str
    title: str
    uri: str
    quote: str
    answer_start: int
    answer_end: int
    passage_start: int
    passage_end: int
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run consumed: billed tokens of LLM calls, tokens of passages retrieved, calls, US dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    retrieved_tokens: int = 0
    llm_calls: int = 0
    cost_usd: float = 0.0

    @property
    def billed_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.retrieved_tokens + other.retrieved_tokens,
            self.llm_calls + other.llm_calls,
            self.cost_usd + other.cost_usd,
        )


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall-clock seconds of a run; a stage that did not run is 0. `first_token_seconds` counts from arrival."""

    embed_seconds: float = 0.0
    decide_seconds: float = 0.0
    retrieve_seconds: float = 0.0
    first_token_seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The folded stream of events: what a unary call returns.

    `route` is the final route, after any escalation. `outcome` and `stop_reason` are None for a dry run.
    """

    request_id: str
    text: str
    source: AnswerSource
    outcome: Outcome | None
    stop_reason: StopReason | None
    route: Route
    decision: Decision
    citations: tuple[Citation, ...] = ()
    clarification: str = ""
    notices: tuple[str, ...] = ()
    steps: int = 0
    usage: Usage = Usage()
    timings: Timings = Timings()
