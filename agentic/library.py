"""What the loop may do with a collection, and how an action becomes evidence.

Tenant, collection, filter and access groups travel in the caller's Scope, which no action can touch. What an action
brings is screened as the first search is: verdicts are read, and the borders of passages that meet are looked at.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agentic.actions import Explore, FindLinked, Read, Search, searches_of
from agentic.embedding import vector_of
from agentic.exploring import explore
from agentic.guards.dedup import Admission, Lot, admit, fetch_size
from agentic.state import Evidence, IssuedQuery
from standard.domain.answer import Usage
from standard.domain.passage import ScanFinding
from standard.llm.tokens import estimate_tokens
from standard.screening import screen_passages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from agentic.actions import Proposal
    from agentic.state import RunState
    from standard.domain.passage import Passage, RetrievedPassage, Scope, Section


class Library(Protocol):
    """A collection as the loop sees it. Every method raises DatabaseUnavailable, and NotFound for what is not there."""

    async def search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        """Up to `k` (1-100) passages by meaning and words, best first; `vector` (d,) is the text's embedding."""
        ...

    async def keyword_search(self, scope: Scope, keywords: str, *, k: int) -> Sequence[RetrievedPassage]:
        """Up to `k` passages that hold the words exactly, best first."""
        ...

    async def semantic_search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        """Up to `k` passages by their best sentence, best first."""
        ...

    async def find_linked(
        self, scope: Scope, passages: Sequence[Passage], *, question: str, vector: NDArray[np.float32], k: int
    ) -> Sequence[RetrievedPassage]:
        """Up to `k` passages that share titles and entities with `passages`, those nearest to the question first."""
        ...

    async def read_section(self, scope: Scope, passage: Passage, *, neighbours: bool) -> Section:
        """The passage's parent section (about 1,000 tokens), scanned as a whole; with those around it if asked."""
        ...

    async def mentioned(self, scope: Scope, names: Sequence[str]) -> frozenset[str]:
        """Those of the names whose words all stand in some passage of the collection."""
        ...


class Embed(Protocol):
    """Turns texts into vectors."""

    async def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """L2-normalised embeddings, (len(texts), d). Raises EmbedderUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action did to a run: the evidence after it, a record of each retrieval, and what each brought.

    `findings` are what the injection scan says of passages and sections that the action brought.
    """

    evidence: Evidence
    issued: tuple[IssuedQuery, ...]
    admissions: tuple[Admission, ...]
    findings: tuple[ScanFinding, ...] = ()

    @property
    def usage(self) -> Usage:
        """The tokens of what is new."""
        return Usage(retrieved_tokens=sum(retrieved_tokens(admission) for admission in self.admissions))


def retrieved_tokens(admission: Admission) -> int:
    """Tokens of the texts that a retrieval brought, estimated."""
    return sum(estimate_tokens(held.text.raw) for held in admission.new)


async def execute(state: RunState, proposal: Proposal, library: Library, scope: Scope, *, snippets: bool) -> Outcome:
    """Carry out a search, link or read action that the guards allowed.

    With `snippets`, found passages enter as snippets until they are read. The searches of a plan run at once.
    """
    match proposal.action:
        case FindLinked():
            return await _link(state, proposal.action, library, scope, snippets=snippets)
        case Explore():
            return await _explore(state, proposal, proposal.action, library, scope, snippets=snippets)
        case Read():
            return await _read(state, proposal.action, library, scope)
        case _:
            return await _search(state, proposal, library, scope, snippets=snippets)


async def _search(state: RunState, proposal: Proposal, library: Library, scope: Scope, *, snippets: bool) -> Outcome:
    searches = searches_of(proposal.action)
    size = fetch_size(state.top_k, state.evidence)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_search_one(search, raw, library, scope, size))
            for search, raw in zip(searches, proposal.vectors, strict=True)
        ]
    lots = [
        Lot(screen_passages(task.result()).passages, state.steps + 1 + index, search.branch)
        for index, (task, search) in enumerate(zip(tasks, searches, strict=True))
    ]
    evidence, admissions = admit(state.evidence, lots, wanted=state.top_k, full=not snippets)
    issued = tuple(
        IssuedQuery(lot.step, search.mode, search.query, raw, len(admission.new), admission.duplicates, search.branch)
        for lot, search, raw, admission in zip(lots, searches, proposal.vectors, admissions, strict=True)
    )
    return Outcome(evidence, issued, admissions, _found(admissions))


async def _search_one(
    search: Search, raw: bytes, library: Library, scope: Scope, size: int
) -> Sequence[RetrievedPassage]:
    match search.mode:
        case "keyword":
            return await library.keyword_search(scope, search.query, k=size)
        case "semantic":
            return await library.semantic_search(scope, search.query, vector_of(raw), k=size)
        case _:
            return await library.search(scope, search.query, vector_of(raw), k=size)


async def _link(state: RunState, action: FindLinked, library: Library, scope: Scope, *, snippets: bool) -> Outcome:
    sources = [held for ref in action.refs if (held := state.evidence.by_ref(ref)) is not None]
    first = state.queries[0]
    found = await library.find_linked(
        scope,
        [held.passage for held in sources],
        question=state.question.raw,
        vector=vector_of(first.vector),
        k=fetch_size(state.top_k, state.evidence),
    )
    lot = Lot([replace(item, via="link") for item in screen_passages(found).passages], state.steps + 1)
    evidence, admissions = admit(state.evidence, [lot], wanted=state.top_k, full=not snippets)
    titles = ", ".join(_titles(state, action.refs))[:200]
    issued = IssuedQuery(lot.step, "link", titles, b"", len(admissions[0].new), admissions[0].duplicates)
    return Outcome(evidence, (issued,), admissions, _found(admissions))


async def _explore(
    state: RunState, proposal: Proposal, action: Explore, library: Library, scope: Scope, *, snippets: bool
) -> Outcome:
    found = await explore(state, action.refs, proposal.vectors[0], library, scope)
    lot = Lot(screen_passages(found).passages, state.steps + 1)
    evidence, admissions = admit(state.evidence, [lot], wanted=state.top_k, full=not snippets)
    titles = ", ".join(_titles(state, action.refs))[:200]
    issued = IssuedQuery(lot.step, "explore", titles, b"", len(admissions[0].new), admissions[0].duplicates)
    return Outcome(evidence, (issued,), admissions, _found(admissions))


def _titles(state: RunState, refs: Sequence[int]) -> list[str]:
    held = (state.evidence.by_ref(ref) for ref in refs)
    return list(dict.fromkeys(item.passage.title.raw for item in held if item is not None))


async def _read(state: RunState, action: Read, library: Library, scope: Scope) -> Outcome:
    held = state.evidence.by_ref(action.ref)
    if held is None:  # the malformed_output guard refuses this; a hole there must not end a run
        return Outcome(state.evidence, (IssuedQuery(state.steps + 1, "read", ""),), (Admission((), 0),))
    section = await library.read_section(scope, held.passage, neighbours=action.neighbours)
    # Empty where the scan withholds the section; the passage stays as it was found.
    # What was read is new to a judge, whatever it said of the piece.
    text = section.text
    read = replace(held, full=True, dropped=False, relevant=None, section=text, neighbours=action.neighbours, note="")
    evidence = Evidence(tuple(read if item.ref == read.ref else item for item in state.evidence.held))
    again = bool(held.note) and held.section == text  # it was shown before and is to be noted better
    gained = not again and (len(text) > len(held.passage.text) or not held.full or held.dropped)
    title = held.passage.title.raw[:200]
    issued = IssuedQuery(state.steps + 1, "read", title, b"", int(gained), int(not gained), ref=read.ref)
    admission = Admission((read,) if gained else (), int(not gained))
    return Outcome(evidence, (issued,), (admission,), _read_anew(held.passage, section.finding))


def _found(admissions: Sequence[Admission]) -> tuple[ScanFinding, ...]:
    """Findings on the passages that are new; those that were passed are not named."""
    passages = (held.passage for admission in admissions for held in admission.new)
    return tuple(
        ScanFinding(passage.passage_id, passage.verdict, passage.techniques, passage.rules_version)
        for passage in passages
        if passage.verdict != "pass"
    )


def _read_anew(passage: Passage, finding: ScanFinding | None) -> tuple[ScanFinding, ...]:
    """The finding on a section, unless the passage by which it was read has told all of it."""
    if finding is None or (finding.verdict == passage.verdict and set(finding.techniques) <= set(passage.techniques)):
        return ()
    return (finding,)
