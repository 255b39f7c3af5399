"""What a run's end says about the choice of its route. Pure functions over its events and its feedback.

Signs that a question needed the agentic route: the standard one handed over (`escalated`) or found its evidence lacking
(`judged_insufficient`); an answer from the first step was rated below 0 (`rated_wrong`); an agentic run whose first
evidence did not suffice came to an answer (`took_further_steps`).
Signs that the standard route would have done: an agentic run's evidence sufficed at the first step
(`sufficient_at_first_step`); a standard answer was rated above 0 (`rated_right`).
What somebody says was right (`correct_route`) outweighs every sign.

    over    agentic was chosen, standard would have done
    under   standard was chosen, agentic was needed
    right   the chosen route is the one that was needed, or a standard answer that nothing speaks against

A route that the request forced, a dry run, contradicting signs and a run without an end have no verdict. The signs of
an escalated run end with its escalation: the model that had to answer said that it could not, which outweighs what a
judge then makes of the same passages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from standard.domain.answer import Answer, Decision, DecisionReason, Outcome, StopReason
from standard.domain.event import Completed, DecisionMade, Escalated, SufficiencyJudged
from standard.domain.question import Route

if TYPE_CHECKING:
    from collections.abc import Iterable

    from standard.domain.event import EventBody


class Verdict(StrEnum):
    """How a choice of route turned out: the label of pointsman_routing_verdicts_total."""

    RIGHT = "right"
    OVER = "over"
    UNDER = "under"


@dataclass(frozen=True, slots=True)
class Feedback:
    """What somebody thought of an answer: `rating` -1 to 1, the route that would have been right; None: not said."""

    rating: float | None = None
    correct_route: Route | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run's events say of its route; None where there was no such event.

    `sufficient_at_first` is the first judgement of the agentic route, over what the first retrieval brought;
    `escalation` the reason for which the standard route handed over, "" where it did not.
    """

    decision: Decision | None = None
    answer: Answer | None = None
    sufficient_at_first: bool | None = None
    escalation: str = ""

    @property
    def chosen(self) -> Route | None:
        """The first choice of route."""
        return self.decision.route if self.decision else None


@dataclass(frozen=True, slots=True)
class Sign:
    """One sign of the route that a question needed, and where it comes from."""

    needed: Route
    source: str


def facts_of(bodies: Iterable[EventBody]) -> RunFacts:
    """Gather the facts from a run's events, in order."""
    decision: Decision | None = None
    answer: Answer | None = None
    first: bool | None = None
    escalation = ""
    for body in bodies:
        match body:
            case DecisionMade():
                decision = body.decision
            case Escalated():
                escalation = body.reason
            case SufficiencyJudged(step=1) if first is None:
                first = body.sufficient
            case Completed():
                answer = body.answer
            case _:
                pass
    return RunFacts(decision, answer, first, escalation)


def signs_of(facts: RunFacts, feedback: Feedback = Feedback()) -> tuple[Sign, ...]:
    """Return the signs of the route that was needed, those of feedback last; see the module."""
    signs: list[Sign] = []
    answer = facts.answer
    answered = answer is not None and answer.outcome in {Outcome.ANSWERED, Outcome.ANSWERED_WITH_CAVEAT}
    rating = feedback.rating or 0.0
    if facts.escalation:
        signs.append(Sign(Route.AGENTIC, "escalated"))
    elif facts.chosen is Route.AGENTIC:
        if facts.sufficient_at_first:
            signs.append(Sign(Route.STANDARD, "sufficient_at_first_step"))
        elif facts.sufficient_at_first is False and answered:
            signs.append(Sign(Route.AGENTIC, "took_further_steps"))
        if rating < 0.0 and facts.sufficient_at_first:
            signs.append(Sign(Route.AGENTIC, "rated_wrong"))
    elif facts.chosen is Route.STANDARD and answer is not None:
        if answer.stop_reason is StopReason.NO_EVIDENCE:
            signs.append(Sign(Route.AGENTIC, "judged_insufficient"))
        if rating < 0.0:
            signs.append(Sign(Route.AGENTIC, "rated_wrong"))
        if rating > 0.0:
            signs.append(Sign(Route.STANDARD, "rated_right"))
    if feedback.correct_route is not None:
        signs.append(Sign(feedback.correct_route, "correct_route"))
    return tuple(signs)


def needed_route(signs: Iterable[Sign]) -> Route | None:
    """Return the route that the signs agree on, or that somebody named; None where there are none or they disagree."""
    needed: set[Route] = set()
    for sign in signs:
        if sign.source == "correct_route":
            return sign.needed
        needed.add(sign.needed)
    return needed.pop() if len(needed) == 1 else None


def verdict(facts: RunFacts, feedback: Feedback = Feedback()) -> Verdict | None:
    """Judge the first choice of route; None where there is nothing to judge or to judge by."""
    decision, answer = facts.decision, facts.answer
    if decision is None or decision.reason is DecisionReason.FORCED or answer is None or answer.outcome is None:
        return None
    signs = signs_of(facts, feedback)
    needed = needed_route(signs)
    if needed is None:
        unopposed = not signs and decision.route is Route.STANDARD and answer.outcome is Outcome.ANSWERED
        return Verdict.RIGHT if unopposed else None
    if needed is decision.route:
        return Verdict.RIGHT
    return Verdict.OVER if decision.route is Route.AGENTIC else Verdict.UNDER


def verdict_of_feedback(facts: RunFacts, before: Feedback, now: Feedback) -> Verdict | None:
    """Return the verdict that feedback made or changed; None where it left the earlier one as it was.

    `before` is the feedback that there was. The run's end was counted with what was known then, so a changed verdict is
    counted again: the metric counts judgements, one a run at its end and one whenever somebody's word turns it.
    """
    found = verdict(facts, now)
    return None if found is verdict(facts, before) else found
