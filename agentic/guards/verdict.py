"""What a guard may say, and what a guard is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentic.actions import Proposal
    from agentic.state import RunState
    from standard.domain.answer import StopReason


@dataclass(frozen=True, slots=True)
class Allow:
    """Go on. With `narrowed`, go on with that instead: part of the proposal was taken away, `reason` says why."""

    narrowed: Proposal | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The action does not happen; the controller is told `reason` and proposes again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The search is over; the run goes to its final answer. `detail` is a sentence in our own words."""

    reason: StopReason
    detail: str


Verdict: TypeAlias = Allow | Refuse | Stop

ALLOW = Allow()


@dataclass(frozen=True, slots=True)
class Guard:
    """A pure decision over a proposal. `name` is its label of pointsman_agentic_guard_trips_total.

    The same state and proposal always give the same verdict; a guard does no I/O and never raises.
    """

    name: str
    check: Callable[[RunState, Proposal], Verdict]
