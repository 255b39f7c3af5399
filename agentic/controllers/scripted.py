"""Searches what it is told, in order: for measuring what the machinery itself loses, with a perfect planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.actions import Branch, Finish, Plan, Proposal, Search, SearchEach
from agentic.controllers.protocol import Pattern
from agentic.judge import EvidenceJudge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentic.state import RunState


class ScriptedController:
    """Adopts its queries as a plan, searches for all of them at once, and finishes."""

    def __init__(self, queries: Sequence[str]) -> None:
        self._branches = tuple(Branch(f"s{number}", query) for number, query in enumerate(queries, 1))

    async def propose(self, state: RunState) -> Proposal:
        """The plan, then its searches, then the end."""
        if not state.plans_made and self._branches:
            return Proposal(Plan(self._branches, reason="script", by_rules=True))
        searched = {query.branch for query in state.queries}
        if self._branches and not searched & {branch.id for branch in self._branches} and not state.refused_in_row:
            searches = tuple(Search(branch.question, branch=branch.id) for branch in self._branches)
            return Proposal(SearchEach(searches, reason="script"))
        return Proposal(Finish("sufficient", reason="the script is at its end"))


def scripted_pattern(queries: Sequence[str]) -> Pattern:
    """The pattern that searches for these queries, whatever comes."""
    return Pattern("scripted", ScriptedController(queries), EvidenceJudge(), needs_llm=False)
