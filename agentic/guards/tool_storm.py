"""Prevents: a turn that fires ten searches at once.

Some models answer with a volley of tool calls whatever the request says about parallel calls; each would be paid for
before anyone has looked at what the first one brought. One action per cycle of propose and judge runs, the others are
refused and counted. A plan's branches are no storm: they were planned, and each costs a step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentic.actions import Search, SearchEach
from agentic.guards.verdict import ALLOW, Allow, Verdict

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "tool_storm"


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Keep the first call of a turn; of several searches at once keep those that are branches of the adopted plan."""
    if isinstance(proposal.action, SearchEach):
        planned = {branch.id for branch in state.plan}
        kept = [index for index, search in enumerate(proposal.action.searches) if search.branch in planned]
        if len(kept) == len(proposal.action.searches) and kept and not proposal.extra_calls:
            return ALLOW
        chosen: Search | SearchEach
        if kept:
            chosen = replace(proposal.action, searches=tuple(proposal.action.searches[index] for index in kept))
        elif proposal.action.searches:
            kept, chosen = [0], proposal.action.searches[0]
        else:
            return ALLOW  # nothing to run: the malformed guard refuses it
        vectors = tuple(proposal.vectors[index] for index in kept if index < len(proposal.vectors))
        dropped = len(proposal.action.searches) - len(kept) + proposal.extra_calls
        return Allow(
            replace(proposal, action=chosen, vectors=vectors, extra_calls=0),
            f"{dropped} further calls of the same turn were refused: one action at a time",
        )
    if proposal.extra_calls:
        return Allow(
            replace(proposal, extra_calls=0),
            f"{proposal.extra_calls} further calls of the same turn were refused: one action at a time",
        )
    return ALLOW
