"""All guards in the order in which they are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentic.guards import (
    already_read,
    clarification,
    malformed_output,
    money,
    no_progress,
    plan_limit,
    query_similarity,
    refusal_limit,
    steps,
    tokens,
    tool_storm,
    unknown_references,
    wall_clock,
)
from agentic.guards.verdict import ALLOW, Allow, Guard, Stop, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentic.actions import Proposal
    from agentic.state import RunState

GUARDS: tuple[Guard, ...] = (
    # What ends the run comes first, so that a refusal never hides a reached cap.
    Guard(wall_clock.NAME, wall_clock.check),
    Guard(money.NAME, money.check),
    Guard(tokens.NAME, tokens.check),
    Guard(refusal_limit.NAME, refusal_limit.check),
    Guard(malformed_output.NAME, malformed_output.check),
    Guard(plan_limit.NAME, plan_limit.check),
    Guard(clarification.NAME, clarification.check),
    Guard(already_read.NAME, already_read.check),
    Guard(no_progress.NAME, no_progress.check),
    Guard(tool_storm.NAME, tool_storm.check),
    # Narrowing by repeats comes before narrowing by steps: a repeat must not take a step from a new query.
    Guard(unknown_references.NAME, unknown_references.check),
    Guard(query_similarity.NAME, query_similarity.check),
    Guard(steps.NAME, steps.check),
)


@dataclass(frozen=True, slots=True)
class Trip:
    """A guard that did not simply allow."""

    guard: str
    reason: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Ruling:
    """What all guards together say: the verdict, the proposal as narrowed on the way, and who objected to what."""

    verdict: Verdict
    proposal: Proposal
    trips: tuple[Trip, ...]


def rule(state: RunState, proposal: Proposal, guards: Sequence[Guard] = GUARDS) -> Ruling:
    """Ask the guards in order; the first refusal or stop decides, narrowing goes on with what is left."""
    trips: list[Trip] = []
    for guard in guards:
        verdict = guard.check(state, proposal)
        if isinstance(verdict, Allow):
            if verdict.narrowed is not None:
                proposal = verdict.narrowed
                trips.append(Trip(guard.name, verdict.reason, verdict))
            continue
        trips.append(Trip(guard.name, verdict.detail if isinstance(verdict, Stop) else verdict.reason, verdict))
        return Ruling(verdict, proposal, tuple(trips))
    return Ruling(ALLOW, proposal, tuple(trips))


def may_call(state: RunState) -> Verdict:
    """May another call of the LLM start, the final answer's aside? Time, money and tokens, each with its reserve."""
    for check in (wall_clock.before_call, money.before_call, tokens.before_call):
        verdict = check(state)
        if isinstance(verdict, Stop):
            return verdict
    return ALLOW
