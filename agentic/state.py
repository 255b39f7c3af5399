"""The whole state of a run, as values: what guards read, what a checkpoint keeps, what a resumed run continues from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pydantic import ConfigDict

from agentic.actions import Branch, Proposal
from agentic.settings import AgenticSettings, Limits
from standard.domain.answer import StopReason, Usage
from standard.domain.passage import Passage, RetrievedPassage
from standard.domain.question import Turn
from standard.domain.text import UntrustedText

UNREADABLE = "unreadable"
"""RunState.llm_failed where the model answers, but not so that its decisions can be read."""


@dataclass(frozen=True, slots=True)
class Held:
    """A passage that the run has acquired. `ref` is its source number, unique in the run, counted from 1 in order.

    `full`: its text stands in the context; a snippet only, until read, if false. `dropped`: compression took the text
    out of the context (the id and number stay valid, and it may be read again). `relevant` is the judge's word on it,
    None until judged. `section` is the parent section's text once read, with the sections around it if `neighbours`.
    `branch` is the plan's branch that brought it. `note` is what the controller noted of a section that it was shown;
    the note stands for it in later turns, the section in the answer's prompt.
    """

    ref: int
    found: RetrievedPassage
    step: int
    full: bool = True
    dropped: bool = False
    relevant: bool | None = None
    section: UntrustedText | None = None
    neighbours: bool = False
    branch: str = ""
    note: str = ""

    @property
    def passage(self) -> Passage:
        """The passage itself."""
        return self.found.passage

    @property
    def text(self) -> UntrustedText:
        """What may be shown of it: the section if it was read, else the chunk."""
        return self.section or self.found.passage.text


@dataclass(frozen=True, slots=True)
class Evidence:
    """Every passage acquired, in order; nothing ever leaves it."""

    held: tuple[Held, ...] = ()

    def by_ref(self, ref: int) -> Held | None:
        """The passage with this source number, if the run holds it."""
        return self.held[ref - 1] if 1 <= ref <= len(self.held) else None

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all held passages."""
        return frozenset(item.passage.passage_id for item in self.held)

    @property
    def hashes(self) -> frozenset[str]:
        """Content hashes of all held passages."""
        return frozenset(item.passage.content_hash for item in self.held)

    @property
    def in_context(self) -> tuple[Held, ...]:
        """The passages whose full text a prompt would show: read, not compressed, not judged irrelevant."""
        return tuple(item for item in self.held if item.full and not item.dropped and item.relevant is not False)

    @property
    def in_turns(self) -> tuple[Held, ...]:
        """The passages of the context that a turn of a controller shows in full: those without a note."""
        return tuple(item for item in self.in_context if not item.note)

    def noted(self, notes: Iterable[tuple[int, str]]) -> Evidence:
        """With a note for each of these source numbers."""
        said = dict(notes)
        if not said:
            return self
        return Evidence(tuple(replace(item, note=said.get(item.ref, item.note)) for item in self.held))

    def shown_to_writer(self, refs: Iterable[int]) -> Evidence:
        """With these sources in the context as they were found, read or not."""
        wanted = frozenset(refs)
        if not wanted:
            return self
        held = (replace(item, full=True, dropped=False) if item.ref in wanted else item for item in self.held)
        return Evidence(tuple(held))


@dataclass(frozen=True, slots=True)
class IssuedQuery:
    """A retrieval action that ran; `ref` is the source that was read, 0 for other actions.

    `vector` is the query's L2-normalised float32 embedding as bytes, empty for none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    step: int
    action: str
    query: str
    vector: bytes = b""
    new: int = 0
    duplicates: int = 0
    branch: str = ""
    ref: int = 0


@dataclass(frozen=True, slots=True)
class Fact:
    """Something the judge or a summary holds for known, with the source numbers that say so."""

    text: str
    refs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NextMove:
    """What the judge would do next; the controller turns it into an action."""

    move: Literal["finish", "search", "link", "read", "ask", "unanswerable"]
    query: str = ""
    refs: tuple[int, ...] = ()
    question: str = ""
    options: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The evidence after a step, against the checklist. `score` 0-1: how much of what is asked the evidence holds."""

    step: int
    score: float
    sufficient: bool
    known: tuple[Fact, ...] = ()
    missing: tuple[str, ...] = ()
    contradictions: tuple[Fact, ...] = ()
    by: Literal["llm", "evidence"] = "llm"
    next: NextMove | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A proposal that a guard refused; `query` is what was proposed, for the controller to see."""

    step: int
    guard: str
    action: str
    reason: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A clarification that was asked and the user's answer to it."""

    question: str
    answer: UntrustedText


@dataclass(frozen=True, slots=True)
class BranchResult:
    """How a branch of the plan ended. `failed` branches are named as gaps in the answer."""

    branch: str
    question: str = ""
    answer: str = ""
    refs: tuple[int, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What compression kept: facts, open questions and contradictions, with the source numbers of each."""

    facts: tuple[Fact, ...]
    open_questions: tuple[str, ...] = ()
    contradictions: tuple[Fact, ...] = ()
    step: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the search is over. `belief` as in Finish; `detail` is a sentence in our own words."""

    reason: StopReason
    belief: Literal["sufficient", "partial", "unanswerable"] = "partial"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RunState:
    """A run between two nodes of the graph.

    `term_idf` pairs lexemes of the question with their inverse document frequency, as the first retrieval told it.
    `corpus_size` is the collection's number of passages, 0 if unknown.
    `steps` counts executed retrieval actions, the first retrieval included. `elapsed_seconds` is wall clock over all
    attempts; `remaining_seconds` what deadline and cap leave at this moment (both are stamped by the graph before a
    node runs). `dropped_queries` were taken out of an action of several since earlier ones had asked. `stale_steps` and
    `refused_in_row` count consecutive steps without gain and refusals. `llm_failed` is set once the model is given up
    on for control (to the kind of failure): from then on the offline controller and judge carry the run. `reviewed` is
    the ending that a review of the draft suspended for one more search.
    """

    question: UntrustedText
    limits: Limits
    settings: AgenticSettings
    history: tuple[Turn, ...] = ()
    top_k: int = 5
    corpus_size: int = 0
    term_idf: tuple[tuple[str, float], ...] = ()
    evidence: Evidence = Evidence()
    steps: int = 0
    queries: tuple[IssuedQuery, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    refused_in_row: int = 0
    dropped_queries: tuple[str, ...] = ()
    stale_steps: int = 0
    proposal: Proposal | None = None
    plan: tuple[Branch, ...] = ()
    plan_by_rules: bool = False
    plans_made: int = 0
    branch_results: tuple[BranchResult, ...] = ()
    summary: Summary | None = None
    compressed_at: int = 0
    replies: tuple[Reply, ...] = ()
    usage: Usage = Usage()
    elapsed_seconds: float = 0.0
    remaining_seconds: float = 0.0
    llm_failed: str = ""
    notices: tuple[str, ...] = ()
    ending: Ending | None = None
    reviewed: Ending | None = None

    @property
    def steps_left(self) -> int:
        """Steps that the budget still allows."""
        return max(0, self.limits.max_steps - self.steps)

    @property
    def last_judgement(self) -> Judgement | None:
        """The judgement of the newest evidence, if it was judged."""
        return self.judgements[-1] if self.judgements else None

    @property
    def recent_refusals(self) -> tuple[Refusal, ...]:
        """The refusals since the last executed action, oldest first."""
        return self.refusals[len(self.refusals) - self.refused_in_row :]

    def spend(self, usage: Usage) -> RunState:
        """The state after a call that cost `usage`."""
        return replace(self, usage=self.usage + usage)

    def end(self, ending: Ending) -> RunState:
        """The state with the search over; the first ending stands."""
        return self if self.ending is not None else replace(self, ending=ending)
