"""Prevents: planning instead of searching.

Adopting a plan costs no step, so a controller that only ever plans would never meet the step budget. A run may plan
once and re-plan a few times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.actions import Plan
from agentic.guards.verdict import ALLOW, Refuse, Verdict

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "plan_limit"

MAX_PLANS = 3


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Refuse a plan beyond the first and two re-plans."""
    if isinstance(proposal.action, Plan) and state.plans_made >= MAX_PLANS:
        return Refuse(f"{MAX_PLANS} plans were made and no further one is taken; the last one stands")
    return ALLOW
