"""From what a route ends with to a whole answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from standard.domain.answer import Answer, AnswerSource, Decision, Timings, Usage
from standard.domain.event import DecisionMade, Escalated
from standard.domain.question import Budget, Question, Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.domain.event import Event
    from standard.domain.outcome import RouteResult


def whole_answer(question: Question, route: Route, decision: Decision, result: RouteResult, timings: Timings) -> Answer:
    """A route's result with everything the gateway knows beside it."""
    return Answer(
        request_id=question.request_id,
        text=result.text,
        source=result.source,
        outcome=result.outcome,
        stop_reason=result.stop_reason,
        route=route,
        decision=decision,
        citations=result.citations,
        clarification=result.clarification,
        notices=result.notices,
        steps=result.steps,
        usage=result.usage,
        timings=timings,
    )


def dry_answer(question: Question, decision: Decision, timings: Timings) -> Answer:
    """What a dry run returns: the decision and no answer."""
    return Answer(
        request_id=question.request_id,
        text="",
        source=AnswerSource.EXTRACTIVE,
        outcome=None,
        stop_reason=None,
        route=decision.route,
        decision=decision,
        notices=("dry run: decided only",),
        steps=0,
        timings=timings,
    )


def less(budget: Budget, usage: Usage) -> Budget:
    """What a route that handed over leaves of the caller's caps."""
    tokens, cost = budget.max_tokens, budget.max_cost_usd
    return replace(
        budget,
        max_tokens=None if tokens is None else max(tokens - usage.billed_tokens, 0),
        max_cost_usd=None if cost is None else max(cost - usage.cost_usd, 0.0),
    )


def agentic_decision(events: Sequence[Event]) -> Decision | None:
    """The decision of a run that took the agentic route in the end, by its events; else None."""
    decision: Decision | None = None
    agentic = False
    for event in events:
        match event.body:
            case DecisionMade(decision=decision):
                agentic = decision.route is Route.AGENTIC
            case Escalated():
                agentic = True
            case _:
                pass
    return decision if agentic else None
