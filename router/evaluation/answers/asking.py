"""Asks one question as the gateway would, without its journal, and keeps what happened as a record.

The parts are the application's own: the same retrieval (reranked where it is), models, policy, routes (an upstream's
too), guards, canary and budgets. Only sticky sessions and caps on a tenant's share are out, for they look back on other
questions.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentic.controllers.scripted import scripted_pattern
from agentic.run import answer_agentic
from agentic.writer import MAX_EXTRACT_PASSAGES
from router.answers import less
from router.asked import asked_text, embedded_text
from router.decide import Signals, decide
from router.evaluation.answers.record import Record
from router.evaluation.answers.scoring import exact_match, f1, is_yes_or_no, says
from router.execution import circumstances
from standard.domain.event import GuardTripped, PlanMade, QueryIssued, SufficiencyJudged
from standard.domain.question import Budget, Question, Route
from standard.domain.text import UntrustedText
from standard.extractive.extract import draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from agentic.run import AgenticParts
    from agentic.state import RunState
    from router.application import Application
    from router.evaluation.answers.questions import AskedQuestion
    from standard.domain.event import EventBody
    from standard.domain.outcome import RouteResult
    from standard.domain.passage import RetrievedPassage, Scope, SearchResult

GOLD = "gold"
"""The controller that searches for the gold decomposition: what the machinery loses with a perfect planner."""
RANKED = 60
"""Passages of a single search that are ranked against the loop's."""
_ANSWER_KEPT = 600
_BUDGET_GUARDS = frozenset({"steps", "tokens", "money", "wall_clock"})


@dataclass(frozen=True, slots=True)
class Arm:
    """How questions are asked: route (None = decided), controller of the loop (None = the settings'), step budget."""

    name: str
    route: Route | None
    controller: str | None = None
    max_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a set is asked: its collection, and whether its documents count by title."""

    set: str
    scope: Scope
    by_title: bool


@dataclass(slots=True)
class _Seen:
    """What the events and the last state of a run showed."""

    actions: Counter[str]
    guards: Counter[str]
    sufficiency: float | None = None
    state: RunState | None = None

    async def emit(self, body: EventBody) -> None:
        """Take an event."""
        match body:
            case QueryIssued():
                self.actions[body.action] += 1
            case PlanMade():
                self.actions["plan"] += 1
            case GuardTripped():
                if body.guard not in _BUDGET_GUARDS:
                    self.guards[body.guard] += 1
            case SufficiencyJudged():
                self.sufficiency = body.score
            case _:
                pass

    def watch(self, state: RunState) -> None:
        """Take the state from which the answer is written."""
        self.state = state


@dataclass(frozen=True, slots=True)
class _First:
    question: Question
    vector: NDArray[np.float32]
    found: SearchResult


class Asker:
    """Asks questions of an application; made once."""

    def __init__(self, application: Application, *, top_k: int) -> None:
        self._application = application
        self._top_k = top_k

    async def ask(self, asked: AskedQuestion, place: Place, arm: Arm) -> Record:
        """Ask a question through an arm. Raises DatabaseUnavailable, EmbedderUnavailable."""
        seen = _Seen(Counter(), Counter())
        budget = Budget(max_steps=arm.max_steps)
        question = Question(UntrustedText(asked.text), place.scope, route=arm.route, top_k=self._top_k, budget=budget)
        began = time.perf_counter()
        vector = await self._application.embed(embedded_text(question))
        retriever = self._application.passages
        found = await retriever.search(place.scope, asked_text(question), vector, k=self._top_k)
        first = _First(question, vector, found)
        route, result, escalated = await self._answer(first, asked, arm, seen)
        seconds = time.perf_counter() - began
        if seen.state is not None:
            held = seen.state.evidence.held
            shown, texts = [one.found for one in held], [one.text.raw for one in held]
            acquired = shown
        else:
            shown, texts = list(found.passages), [item.passage.text.raw for item in found.passages]
            wide = await retriever.search(place.scope, asked_text(question), vector, k=max(RANKED, self._top_k))
            acquired = list(wide.passages)
        record = Record(
            set=place.set,
            id=asked.id,
            arm=arm.name,
            answerable=asked.answerable,
            route=route.value,
            outcome=result.outcome.value,
            stop_reason=result.stop_reason.value,
            support=tuple(tuple(sorted(choices)) for choices in asked.support),
            acquired=tuple(_name(item, by_title=place.by_title) for item in acquired),
            shown=len(shown),
            actions=dict(seen.actions),
            guards=dict(seen.guards),
            escalated=escalated,
            seconds=seconds,
            sufficiency=seen.sufficiency,
            evidence=draft(asked.text, shown[:MAX_EXTRACT_PASSAGES], found.term_idf).evidence,
        )
        return _judged(record, result, asked, texts, by_title=place.by_title)

    async def _answer(
        self, first: _First, asked: AskedQuestion, arm: Arm, seen: _Seen
    ) -> tuple[Route, RouteResult, bool]:
        route = await self._route(first)
        if route is Route.AGENTIC:
            return Route.AGENTIC, await self._agentic(first, asked, arm, seen), False
        may_escalate = arm.route is None and self._application.settings.routing.escalate
        result = await self._application.standard(
            first.question, first.vector, first.found, emit=seen.emit, may_escalate=may_escalate
        )
        if not result.escalate:
            return Route.STANDARD, result, False
        left = replace(first, question=replace(first.question, budget=less(first.question.budget, result.usage)))
        further = await self._agentic(left, asked, arm, seen)
        return Route.AGENTIC, replace(further, usage=result.usage + further.usage), True

    async def _route(self, first: _First) -> Route:
        application, question = self._application, first.question
        if question.route is not None:
            return question.route
        models = application.models.current()
        signals = Signals()
        if models is not None:
            signals = await models.signals(await models.read(question), first.vector, first.found)
        around = circumstances(question, session_route=None, agentic_share=0.0, priced=application.llm is not None)
        return decide(signals, around, application.policies.policy(question.scope.tenant)).route

    async def _agentic(self, first: _First, asked: AskedQuestion, arm: Arm, seen: _Seen) -> RouteResult:
        parts, controller = _parts_for(self._application.agentic, asked, arm)
        return await answer_agentic(
            first.question,
            first.found,
            first.vector,
            parts=parts,
            emit=seen.emit,
            controller=controller,
            watch=seen.watch,
        )


def _parts_for(parts: AgenticParts, asked: AskedQuestion, arm: Arm) -> tuple[AgenticParts, str | None]:
    if arm.controller != GOLD:
        return parts, arm.controller
    pattern = scripted_pattern(asked.lookups)
    if not parts.has_llm:  # a pattern beside the offline one would mean that there is a model
        return replace(parts, offline=pattern), None
    return replace(parts, patterns={**parts.patterns, GOLD: pattern}), GOLD


def _judged(
    record: Record, result: RouteResult, asked: AskedQuestion, shown: Sequence[str], *, by_title: bool
) -> Record:
    """Add to the record what the answer says, cites and cost; `shown` are the texts that it could rest on."""
    gold = asked.answers if asked.answerable else ()
    in_passages = gold and not is_yes_or_no(gold)
    return replace(
        record,
        cited=tuple(one.title if by_title else one.document_id for one in result.citations),
        holds_answer=any(says(text, gold) for text in shown) if in_passages else None,
        says_answer=says(result.text, gold) if gold else None,
        em=exact_match(result.text, gold) if gold else None,
        f1=f1(result.text, gold) if gold else None,
        steps=result.steps,
        llm_calls=result.usage.llm_calls,
        billed_tokens=result.usage.billed_tokens,
        retrieved_tokens=result.usage.retrieved_tokens,
        cost_usd=result.usage.cost_usd,
        answer=result.text[:_ANSWER_KEPT],
    )


def _name(item: RetrievedPassage, *, by_title: bool) -> str:
    return item.passage.title.raw if by_title else item.passage.document_id
