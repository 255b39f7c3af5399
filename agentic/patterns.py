"""Every pattern of the loop that a language model makes possible, by the name that a setting picks it by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.controllers.decide import decide_pattern
from agentic.controllers.plan import plan_pattern
from agentic.controllers.tools import tools_pattern

if TYPE_CHECKING:
    from agentic.controllers.protocol import Pattern
    from standard.llm.protocol import Llm


def llm_patterns(llm: Llm | None) -> dict[str, Pattern]:
    """The patterns of this model: decide, plan, tools; none without one (the offline pattern needs no model)."""
    if llm is None:
        return {}
    return {pattern.name: pattern for pattern in (decide_pattern(llm), plan_pattern(llm), tools_pattern(llm))}
