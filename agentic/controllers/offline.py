"""The offline controller: no model at all.

It goes on from the first retrieval to what its sources name and what stands near them, splits comparisons and
conjunctions into their parts and searches for each, and goes on from what came. It ends when that brings nothing new,
after a few such steps, or with its budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.actions import Branch, Explore, Finish, Plan, Proposal, Search, SearchEach
from agentic.controllers.protocol import Pattern
from agentic.controllers.split import split_question
from agentic.coverage import content_terms, covered, stems
from agentic.judge import EvidenceJudge

if TYPE_CHECKING:
    from agentic.actions import Action
    from agentic.state import Held, RunState

MAX_EXPLORE_STEPS = 3
"""Steps onward. Questions of more hops exist, but what a fourth brings is mostly noise."""

_SOURCES = 5
"""Sources from which a step goes on."""


class OfflineController:
    """Proposes by rules alone."""

    async def propose(self, state: RunState) -> Proposal:
        """The next action by the rules of this module."""
        return Proposal(next_action(state))


def offline_pattern() -> Pattern:
    """The pattern that needs no LLM."""
    return Pattern("offline", OfflineController(), EvidenceJudge(), needs_llm=False)


def next_action(state: RunState) -> Action:
    """Explore once, split and search the parts, explore on from what came, finish."""
    explored = sum(query.action == "explore" for query in state.queries)
    if not explored and not state.refused_in_row:
        return Explore(_sources_to_follow(state), reason="go on from the best sources")
    if not state.plans_made:
        parts = split_question(_need(state))
        if parts:
            branches = tuple(Branch(id=f"p{index}", question=part) for index, part in enumerate(parts, start=1))
            return Plan(branches, reason="the question joins several lookups", by_rules=True)
    issued = {query.branch for query in state.queries}
    refused = {refusal.query for refusal in state.refusals} | set(state.dropped_queries)
    pending = [
        branch
        for branch in state.plan
        if not branch.depends_on and branch.id not in issued and branch.question not in refused
    ]
    if pending and not state.refused_in_row:
        searches = tuple(Search(branch.question, branch=branch.id) for branch in pending)
        return SearchEach(searches, reason="one search for each part of the question")
    if explored < MAX_EXPLORE_STEPS and not state.refused_in_row:
        sources = _sources_to_follow(state)
        if sources:
            return Explore(sources, reason="go on from what came since")
    return _finish(state)


def _need(state: RunState) -> str:
    """The question with what the user has added to it."""
    return " ".join([state.question.raw, *(reply.answer.raw for reply in state.replies)])


def _sources_to_follow(state: RunState) -> tuple[int, ...]:
    """Sources that came with or since the last such step: first as ranked, then by what they hold of the question."""
    if not any(query.action == "explore" for query in state.queries):
        return tuple(held.ref for held in state.evidence.held[:_SOURCES])
    last = max((query.step for query in state.queries if query.action == "explore"), default=0)
    fresh = [held for held in state.evidence.held if held.step >= last]
    terms = content_terms(_need(state), dict(state.term_idf))

    def share(held: Held) -> float:
        return covered(terms, stems(f"{held.passage.title.raw} {held.passage.text.raw}"))

    ranked = sorted(fresh, key=lambda held: (-share(held), held.ref))
    return tuple(held.ref for held in ranked[:_SOURCES])


def _finish(state: RunState) -> Finish:
    judgement = state.last_judgement
    if judgement is None or not state.evidence.held or judgement.score < state.settings.abstain_score:
        return Finish("unanswerable", reason="the sources hold too little of the question")
    if judgement.sufficient:
        return Finish("sufficient", reason="the sources hold what the question names")
    return Finish("partial", reason="there is nothing left to follow")
