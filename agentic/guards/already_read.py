"""Prevents: reading the same thing twice, and the opposite: forbidding a second reading that is needed.

A model that re-reads a source pays a step for text that its context already shows. But once compression or a note of
its own has taken the text out of the context, reading it again is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.actions import Read
from agentic.guards.verdict import ALLOW, Refuse, Verdict

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "already_read"


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Refuse, at no cost, to read a section that stands in the context as it is."""
    if not isinstance(proposal.action, Read):
        return ALLOW
    held = state.evidence.by_ref(proposal.action.ref)
    if held is None or held.section is None or held.dropped or held.note:
        return ALLOW
    if proposal.action.neighbours and not held.neighbours:
        return ALLOW
    return Refuse(f"source S{held.ref} was already read; its section was shown in full")
