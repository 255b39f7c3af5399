"""What a controller is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agentic.judge import Judge

if TYPE_CHECKING:
    from agentic.actions import Proposal
    from agentic.state import RunState


class Controller(Protocol):
    """Proposes the next action. It holds no state of a run: everything it knows is in the RunState."""

    async def propose(self, state: RunState) -> Proposal:
        """Propose an action; output that cannot be read becomes a Malformed action. May raise LlmUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of the loop: who proposes, who judges.

    `snippets`: found passages are shown in full only once read. `needs_llm`: proposing calls the model;
    `judges_with_llm`: judging does.
    """

    name: str
    controller: Controller
    judge: Judge
    snippets: bool = False
    needs_llm: bool = True
    judges_with_llm: bool = False
