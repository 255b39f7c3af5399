"""Prevents: a question that costs more than it is worth to the one who pays.

Tokens of different models cost differently, so the token cap does not bound money. Checked before every call with the
final answer's share kept back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.guards.verdict import ALLOW, Stop, Verdict
from standard.domain.answer import StopReason

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "money"


def before_call(state: RunState) -> Verdict:
    """May another call of control start?"""
    cap = state.limits.max_cost_usd
    if cap is None or state.usage.cost_usd < cap - state.limits.reserve_cost_usd:
        return ALLOW
    # A cap of zero with a model that costs nothing is no reason to stop.
    if state.usage.cost_usd == 0.0 and state.limits.reserve_cost_usd == 0.0:
        return ALLOW
    return Stop(StopReason.COST_BUDGET, f"the budget of {cap:.4f} US dollars is used")


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Stop once only the reserve is left, unless the proposal ends the search anyway."""
    return ALLOW if proposal.action.kind in {"finish", "ask"} else before_call(state)
