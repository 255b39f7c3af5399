"""Prevents: a run that interrogates the user instead of answering.

A model that is unsure asks, gets an answer, and asks again. A run may ask a few times (a setting); after that it must
work with what it has. Asking for nothing is refused as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.actions import Ask
from agentic.guards.verdict import ALLOW, Refuse, Verdict

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "clarification"


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Refuse a question to the user that is empty or one too many."""
    if not isinstance(proposal.action, Ask):
        return ALLOW
    if not proposal.action.question.strip():
        return Refuse("the question to the user is empty")
    if len(state.replies) >= state.settings.guards.max_questions:
        return Refuse("the user has been asked often enough; decide with what is known")
    return ALLOW
