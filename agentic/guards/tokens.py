"""Prevents: a run that bills without bound.

Steps do not bound tokens: one step may hold a prompt of any size. Checked before every call with the final answer's
share kept back, so that a run overshoots by the call in flight at most and can still afford to answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.guards.verdict import ALLOW, Stop, Verdict
from standard.domain.answer import StopReason

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "tokens"


def tokens_left(state: RunState) -> int:
    """Billed tokens that may still be spent before the final answer's reserve is touched; never negative."""
    return max(0, state.limits.max_tokens - state.limits.reserve_tokens - state.usage.billed_tokens)


def before_call(state: RunState) -> Verdict:
    """May another call of control start?"""
    if tokens_left(state) > 0:
        return ALLOW
    return Stop(StopReason.TOKEN_BUDGET, f"the budget of {state.limits.max_tokens} tokens is used")


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Stop once only the reserve is left, unless the proposal ends the search anyway."""
    return ALLOW if proposal.action.kind in {"finish", "ask"} else before_call(state)
