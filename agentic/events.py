"""What the loop tells the caller while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentic.actions import Explore, FindLinked, Read, searches_of
from standard.domain.event import (
    PassageFound,
    PassagesFound,
    PassagesScreened,
    PlanMade,
    QueryIssued,
    SubQuestion,
    SufficiencyJudged,
)
from standard.screening import shown_text

if TYPE_CHECKING:
    from agentic.actions import Action, Plan
    from agentic.guards.dedup import Admission
    from agentic.library import Outcome
    from agentic.state import Fact, Held, IssuedQuery, Judgement, RunState

SNIPPET_LENGTH = 200
"""Code points of a passage's beginning in a PassagesFound event."""


def query_events(state: RunState, action: Action, prompt_tokens: int = 0) -> tuple[QueryIssued, ...]:
    """One event for each retrieval that the action is about to run; the first tells the prompt of its proposal."""
    events = _query_events(state, action)
    return (*(replace(event, prompt_tokens=prompt_tokens) for event in events[:1]), *events[1:])


def _query_events(state: RunState, action: Action) -> tuple[QueryIssued, ...]:
    match action:
        case FindLinked(refs=refs, reason=reason) | Explore(refs=refs, reason=reason):
            found = (held.passage.title.raw.strip() for ref in refs if (held := state.evidence.by_ref(ref)))
            titles = ", ".join(dict.fromkeys(title for title in found if title))
            return (QueryIssued(state.steps + 1, action.kind, titles[:SNIPPET_LENGTH], reason),)
        case Read(ref=ref, reason=reason):
            held = state.evidence.by_ref(ref)
            title = held.passage.title.raw[:SNIPPET_LENGTH] if held is not None else ""
            return (QueryIssued(state.steps + 1, "read", title, reason),)
        case _:
            return tuple(
                QueryIssued(
                    state.steps + 1 + index,
                    "search" if search.mode == "hybrid" else f"{search.mode}_search",
                    search.query,
                    search.reason or getattr(action, "reason", ""),
                )
                for index, search in enumerate(searches_of(action))
            )


def found_event(issued: IssuedQuery, admission: Admission) -> PassagesFound:
    """What a retrieval brought."""
    return PassagesFound(issued.step, tuple(passage_found(held) for held in admission.new), admission.duplicates)


def passage_found(held: Held) -> PassageFound:
    """A held passage as an event shows it."""
    passage = held.passage
    return PassageFound(
        passage_id=passage.passage_id,
        document_id=passage.document_id,
        title=passage.title.raw,
        uri=passage.uri,
        score=held.found.score,
        snippet=shown_text(passage)[:SNIPPET_LENGTH],
        verdict=passage.verdict,
    )


def screened_event(outcome: Outcome) -> PassagesScreened | None:
    """What the injection scan says of what an action brought; None where it has nothing to say."""
    return PassagesScreened(outcome.findings) if outcome.findings else None


def plan_event(plan: Plan, prompt_tokens: int = 0) -> PlanMade:
    """The adopted plan."""
    parts = tuple(SubQuestion(branch.id, branch.question, branch.depends_on) for branch in plan.branches)
    return PlanMade(parts, prompt_tokens)


def sufficiency_event(judgement: Judgement, prompt_tokens: int = 0) -> SufficiencyJudged:
    """The judge's checklist, and why it would go on as it says."""
    return SufficiencyJudged(
        step=judgement.step,
        score=judgement.score,
        sufficient=judgement.sufficient,
        known=tuple(_with_refs(fact) for fact in judgement.known),
        missing=judgement.missing,
        contradictions=tuple(_with_refs(fact) for fact in judgement.contradictions),
        reason=judgement.next.reason if judgement.next is not None else "",
        prompt_tokens=prompt_tokens,
    )


def _with_refs(fact: Fact) -> str:
    return fact.text + "".join(f" [{ref}]" for ref in fact.refs)
