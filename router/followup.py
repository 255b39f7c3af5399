"""What a question says once it is read with what was said before: settled once, before anything is made of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from classifier.followup import leans
from router.answers import less
from router.asked import asked_text
from standard.condense import condense
from standard.domain.answer import Usage
from standard.domain.text import UntrustedText

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from standard.domain.question import Budget, Question
    from standard.sandbox.guarded_llm import GuardedLlm

SESSION_TURNS: Final = 3
"""Questions of a session, each with its answer, that are read with one that brings no history of its own."""
_SECONDS, _LEAST_SECONDS, _SHARE = 5.0, 0.5, 0.2
_LEAST_TOKENS: Final = 4_000


@dataclass(frozen=True, slots=True)
class Understood:
    """The question with `standalone` set where it leans on what was said before, and what that cost.

    The question's caps are what that left of them.
    """

    question: Question
    usage: Usage = Usage()


async def understood(
    question: Question, llm: GuardedLlm | None, is_ours: Callable[[], Awaitable[bool]] | None = None
) -> Understood:
    """Settle what a question asks; `llm` is asked once where it leans, a rule decides without one or where it fails.

    The call gets a fifth of the time that is left, five seconds at most. It is not made where time, tokens or money are
    short, where `is_ours` says that somebody else has the run, or in a dry run, which does without a model.
    """
    if question.standalone is not None or not question.history or not leans(question.text.raw):
        return Understood(question)
    usage, text = Usage(), None
    began = asyncio.get_running_loop().time()
    seconds = _seconds(question)
    tokens = question.budget.max_tokens
    if (
        llm is not None
        and not question.dry_run
        and seconds >= _LEAST_SECONDS
        and (tokens is None or tokens >= _LEAST_TOKENS)
        and question.budget.max_cost_usd != 0.0
        and (is_ours is None or await is_ours())
    ):
        text, usage = await condense(llm, question.text, question.history, timeout_seconds=seconds)
    if text is None:
        by_rule = asked_text(question)
        text = question.text if by_rule == question.text.raw else UntrustedText(by_rule)
    took = asyncio.get_running_loop().time() - began
    return Understood(replace(question, standalone=text, budget=_left(question.budget, usage, took)), usage)


def _left(budget: Budget, usage: Usage, took: float) -> Budget:
    """What a call that took so many seconds leaves of the caller's caps."""
    rest = less(budget, usage)
    if rest.max_seconds is None:
        return rest
    return replace(rest, max_seconds=max(rest.max_seconds - took, 0.0))


def _seconds(question: Question) -> float:
    """Seconds that the model may take."""
    left = [question.budget.max_seconds] if question.budget.max_seconds is not None else []
    if question.deadline is not None:
        left.append(question.deadline - asyncio.get_running_loop().time())
    return min([_SECONDS, *(_SHARE * each for each in left)])
