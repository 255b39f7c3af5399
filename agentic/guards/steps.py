"""Prevents: a loop that searches until somebody's patience ends.

Models ask for "one more search" without end, and a passage may tell them that they have a hundred more steps. The cap
is the request's, counted by the gateway: a proposal that costs more steps than are left loses what does not fit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentic.actions import SearchEach, steps_of
from agentic.guards.verdict import ALLOW, Allow, Stop, Verdict
from standard.domain.answer import StopReason

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "steps"


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Allow what the remaining steps cover; cut a plan's searches to them; stop when none is left."""
    cost = steps_of(proposal.action)
    if cost == 0 or cost <= state.steps_left:
        return ALLOW
    if state.steps_left and isinstance(proposal.action, SearchEach):
        kept = replace(proposal.action, searches=proposal.action.searches[: state.steps_left])
        left = f"{state.steps_left} of {cost} searches fit into the steps that are left"
        return Allow(replace(proposal, action=kept, vectors=proposal.vectors[: state.steps_left]), left)
    return Stop(StopReason.STEP_BUDGET, f"all {state.limits.max_steps} steps are used")
