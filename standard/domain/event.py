"""What happens in a run, as it happens. Both routes yield these; a unary answer is the stream folded.

A body says what happened; `Event` numbers it. `text` is a short human-readable line about it ("Searching for …"), free
of document text except query strings and titles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from standard.domain.answer import Answer, Citation, Decision
from standard.domain.passage import ScanFinding
from standard.domain.question import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass(frozen=True, slots=True)
class DecisionMade:
    """The route was chosen."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class SubQuestion:
    """One branch of a plan; `depends_on` are ids of branches whose answers it needs."""

    id: str
    question: str
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The question was split. `prompt_tokens` here and below: of the prompts that this came of, 0 without a model."""

    sub_questions: tuple[SubQuestion, ...]
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class QueryIssued:
    """A search or another retrieval action is about to run. `step` counts from 1; `action` is search, read, link …"""

    step: int
    action: str
    query: str
    reason: str = ""
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PassageFound:
    """A passage in a PassagesFound event; `score` as in RetrievedPassage."""

    passage_id: str
    document_id: str
    title: str
    uri: str
    score: float
    snippet: str = ""
    verdict: str = "pass"


@dataclass(frozen=True, slots=True)
class PassagesFound:
    """What an action brought: new passages, and how many known ones came again."""

    step: int
    passages: tuple[PassageFound, ...]
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class PassagesScreened:
    """Passages found that the injection scan flagged, neutralised or quarantined; those it passed are not named."""

    findings: tuple[ScanFinding, ...]


@dataclass(frozen=True, slots=True)
class SufficiencyJudged:
    """The evidence so far was judged. `score` 0-1; the lists are the judge's checklist, `reason` its next move's."""

    step: int
    score: float
    sufficient: bool
    known: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    reason: str = ""
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GuardTripped:
    """A guard refused an action or stopped the search; `query` is what the action would have looked for first.

    `guard` is a label of pointsman_agentic_guard_trips_total.
    """

    step: int
    guard: str
    action: str
    reason: str
    stops: bool = False
    prompt_tokens: int = 0
    query: str = ""


@dataclass(frozen=True, slots=True)
class ContextCompressed:
    """Raw passages left the context for a summary. Tokens are the context's, before and after."""

    step: int
    tokens_before: int
    tokens_after: int
    passage_ids: tuple[str, ...]
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Escalated:
    """The standard route handed over to the agentic one. `reason` is a label of pointsman_escalations_total."""

    from_route: Route
    to_route: Route
    reason: str


@dataclass(frozen=True, slots=True)
class ClarificationAsked:
    """The run waits for the user; it continues with ResumeAnswer and an input."""

    question: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenEmitted:
    """The next piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class CitationMade:
    """A citation of text that was already emitted; `index` counts from 0 in order of appearance."""

    index: int
    citation: Citation


@dataclass(frozen=True, slots=True)
class Degraded:
    """A dependency failed and something simpler took over. `dependency` as in pointsman_dependency_up."""

    dependency: str
    notice: str


@dataclass(frozen=True, slots=True)
class OutputBlocked:
    """The output guard ended the answer; nothing of the answer follows."""

    reason: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The last event of a run: the whole answer."""

    answer: Answer


EventBody: TypeAlias = (
    DecisionMade
    | PlanMade
    | QueryIssued
    | PassagesFound
    | PassagesScreened
    | SufficiencyJudged
    | GuardTripped
    | ContextCompressed
    | Escalated
    | ClarificationAsked
    | TokenEmitted
    | CitationMade
    | Degraded
    | OutputBlocked
    | Completed
)


@dataclass(frozen=True, slots=True)
class Event:
    """A numbered event of a run; `sequence` counts from 1 without gaps."""

    sequence: int
    body: EventBody
    text: str = ""


Emit: TypeAlias = "Callable[[EventBody], Awaitable[None]]"
"""Hands a body to the run's stream; awaits while the stream's bound is reached."""
