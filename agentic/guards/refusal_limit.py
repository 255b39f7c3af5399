"""Prevents: a controller that is told "no" a thousand times and tries again.

Advice in a prompt does not stop a model that keeps proposing what was refused; each try costs a call. After a few
refused proposals in a row, of whatever kind, the search is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.guards.verdict import ALLOW, Stop, Verdict
from standard.domain.answer import StopReason

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "refusal_limit"


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Stop if the refusals before this proposal already reach the limit and it would not end the search by itself."""
    if proposal.action.kind in {"finish", "ask"}:
        return ALLOW
    if state.refused_in_row >= state.settings.guards.max_refusals_in_row:
        return Stop(StopReason.NO_PROGRESS, f"{state.refused_in_row} proposals in a row were refused")
    return ALLOW
