"""Prevents: one broken tool call that kills the run or poisons every later turn.

Models return cut-off JSON, unknown tools, wrong types, nothing at all. A controller turns what it cannot read into a
Malformed action and never keeps the broken text in its conversation. It gets one try to repair it; after the second in
a row the rules of the offline controller carry the run on (`agentic.controllers.llm`), and with no step left to go the
search ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.actions import MAX_QUERY_LENGTH, Explore, FindLinked, Malformed, Plan, Read, SearchEach, searches_of
from agentic.guards.verdict import ALLOW, Refuse, Verdict

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "malformed_output"


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Refuse what makes no sense: unreadable output, empty or overlong queries, sources that the run does not hold."""
    action = proposal.action
    if isinstance(action, Malformed):
        return Refuse(f"the output could not be read: {action.problem}")
    if isinstance(action, SearchEach) and not action.searches:
        return Refuse("no search was given")
    for search in searches_of(action):
        if not search.query.strip():
            return Refuse("the query is empty")
        if len(search.query) > MAX_QUERY_LENGTH:
            return Refuse(f"the query is longer than {MAX_QUERY_LENGTH} characters")
    if isinstance(action, FindLinked | Explore | Read):
        refs = (action.ref,) if isinstance(action, Read) else action.refs
        if not refs and not isinstance(action, Explore):
            return Refuse("no source was named")
        unknown = [ref for ref in refs if state.evidence.by_ref(ref) is None]
        if unknown:
            return Refuse(f"there is no source S{unknown[0]}")
    if isinstance(action, Plan):
        return _check_plan(action)
    return ALLOW


def _check_plan(plan: Plan) -> Verdict:
    """A plan needs branches with different ids whose dependencies come before them."""
    seen: set[str] = set()
    for branch in plan.branches:
        if not branch.id or branch.id in seen:
            return Refuse("every branch of the plan needs an id of its own")
        if not branch.question.strip() or len(branch.question) > MAX_QUERY_LENGTH:
            return Refuse(f"a branch's question must have 1 to {MAX_QUERY_LENGTH} characters")
        if any(parent not in seen for parent in branch.depends_on):
            return Refuse("a branch may depend only on branches that stand before it")
        seen.add(branch.id)
    return ALLOW if seen else Refuse("the plan has no branches")
