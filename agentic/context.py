"""What the nodes of one attempt of a run work with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentic.answer import MoreNeeded
    from agentic.compression import Compress
    from agentic.controllers.protocol import Pattern
    from agentic.library import Embed, Library
    from agentic.state import RunState
    from standard.domain.event import Emit, EventBody
    from standard.domain.outcome import RouteResult
    from standard.domain.passage import Scope


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the nodes of one attempt of a run work with; not part of any checkpoint.

    `clock` counts seconds (the event loop's time); `started` is its value when the attempt began, `elapsed_before` what
    earlier attempts took, `deadline` the clock's value at which the answer must be out. `can_ask` tells whether the run
    can wait for the user (it has a checkpointer). `note` is shown how far the run got, before each event.
    """

    pattern: Pattern
    offline: Pattern
    library: Library
    embed: Embed
    scope: Scope
    emit: Emit
    write_answer: Callable[[RunState], Awaitable[RouteResult | MoreNeeded]]
    compress: Compress | None
    clock: Callable[[], float]
    started: float
    elapsed_before: float = 0.0
    deadline: float | None = None
    can_ask: bool = False
    note: Callable[[RunState], None] = lambda _: None

    async def tell(self, state: RunState, body: EventBody) -> None:
        """Emit an event of a run that got as far as `state`: what it cost counts even if the event ends it."""
        self.note(state)
        await self.emit(body)

    def stamp(self, state: RunState) -> RunState:
        """The state with the time it is."""
        now = self.clock()
        elapsed = self.elapsed_before + now - self.started
        remaining = state.limits.max_seconds - elapsed
        if self.deadline is not None:
            remaining = min(remaining, self.deadline - now)
        return replace(state, elapsed_seconds=elapsed, remaining_seconds=remaining)

    def pattern_of(self, state: RunState) -> Pattern:
        """The run's pattern; the offline one once the model was given up on."""
        return self.offline if state.llm_failed else self.pattern
