"""Prevents: an answer that comes after nobody waits for it any more.

A slow model or database uses up the caller's deadline in the loop, and the call fails with nothing. Checked before
every call against the smaller of deadline and cap, with the time to write the answer kept back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.guards.verdict import ALLOW, Stop, Verdict
from standard.domain.answer import StopReason

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "wall_clock"


def seconds_left(state: RunState) -> float:
    """Seconds that may still pass before the final answer's reserve is touched; never negative."""
    return max(0.0, state.remaining_seconds - state.limits.reserve_seconds)


def before_call(state: RunState) -> Verdict:
    """May another call of control start?"""
    if seconds_left(state) > 0.0:
        return ALLOW
    return Stop(StopReason.TIME_BUDGET, "the time for searching is used")


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Stop once only the reserve is left, unless the proposal ends the search anyway."""
    return ALLOW if proposal.action.kind in {"finish", "ask"} else before_call(state)
