"""Prevents: paying for steps that bring nothing.

A search that only meets known passages, or only passages that the judge finds irrelevant, is likely to be followed by
another one like it: the collection has said what it has. Two such steps in a row end the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.actions import steps_of
from agentic.guards.verdict import ALLOW, Stop, Verdict
from standard.domain.answer import StopReason

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import Judgement, RunState

NAME = "no_progress"


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Stop before another retrieval once enough steps in a row brought nothing."""
    if steps_of(proposal.action) == 0 or state.stale_steps < state.settings.guards.max_stale_steps:
        return ALLOW
    return Stop(StopReason.NO_PROGRESS, f"{state.stale_steps} steps in a row brought nothing new")


def gained(new_passages: int, before: Judgement | None, after: Judgement | None, new_relevant: int | None) -> bool:
    """Did a step bring something? `new_relevant` of its new passages are relevant to the judge, None: unjudged.

    New passages count unless the judge found none of them relevant and its score did not rise by more than 0.01; scores
    of different judges are not compared.
    """
    if new_passages == 0:
        return False
    if after is None or after.by != "llm" or new_relevant is None:
        return True
    score_before = before.score if before is not None and before.by == after.by else 0.0
    return new_relevant > 0 or after.score > score_before + 0.01
