"""Calls of control to the language model: within the run's budgets, with one attempt to repair unreadable output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel

from agentic.guards.chain import may_call
from agentic.guards.tokens import tokens_left
from agentic.guards.verdict import Stop
from agentic.guards.wall_clock import seconds_left
from agentic.structured import UnreadableOutput, parse_reply
from standard.domain.answer import Usage
from standard.domain.errors import LlmUnavailable
from standard.domain.text import UntrustedText
from standard.llm.protocol import LlmRequest, Message
from standard.sandbox.guarded_llm import guarded
from standard.sandbox.prompt import PromptText, instruction, join
from standard.sandbox.render import render_notes, with_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agentic.state import RunState
    from standard.llm.protocol import Completion, Llm, Purpose
    from standard.sandbox.render import Marker

Shape = TypeVar("Shape", bound=BaseModel)

_MIN_OUTPUT = 32

_MAY_RECOVER = frozenset({"malformed", "cut"})
"""Failures of a reply, not of the server: worth the one repair attempt."""


@dataclass(frozen=True, slots=True)
class Read(Generic[Shape]):
    """A structured reply that could be read, and what all attempts cost."""

    reply: Shape
    usage: Usage
    completion: Completion


def timeout_of(state: RunState) -> float:
    """Seconds that a call of control may take: the setting, or what is left for searching if that is less."""
    return max(0.05, min(state.settings.call_seconds, seconds_left(state)))


def output_cap(state: RunState, wanted: int) -> int:
    """Output tokens that a call of control may ask for."""
    return max(_MIN_OUTPUT, min(wanted, tokens_left(state)))


async def ask_structured(
    llm: Llm,
    state: RunState,
    purpose: Purpose,
    system: PromptText,
    user: Callable[[Marker], PromptText],
    shape: type[Shape],
    schema: Mapping[str, object],
    *,
    max_tokens: int,
) -> Read[Shape]:
    """Ask for a JSON object of this shape. Raises LlmUnavailable, UnreadableOutput after one repair attempt.

    The repair asks the same again and says what was wrong; the unreadable text itself is never sent back. `usage` of a
    failed pair of attempts travels with the UnreadableOutput. A reply whose values repeat the system prompt or its
    canary counts as unreadable: nothing of it is used.
    """
    llm = guarded(llm)
    spent = Usage()
    problem = ""
    for attempt in range(2):
        request = LlmRequest(
            purpose=purpose,
            messages=with_marker(lambda marker, told=problem: _messages(system, user, marker, told)),  # type: ignore[misc]
            max_tokens=output_cap(state, max_tokens),
            timeout_seconds=timeout_of(state),
            json_schema=schema,
        )
        try:
            completion = await llm.complete(request)
        except LlmUnavailable as error:
            if attempt == 0 and error.kind in _MAY_RECOVER:
                continue
            raise
        spent += completion.usage
        try:
            reply = parse_reply(completion.text, shape, finish_reason=completion.finish_reason)
            if llm.leak_of(system, reply.model_dump()):
                llm.withheld(purpose)
                raise UnreadableOutput("the reply repeated the instructions")
        except UnreadableOutput as error:
            problem = error.problem
            if attempt == 1 or isinstance(may_call(state.spend(spent)), Stop):
                raise UnreadableOutput(problem, spent) from error
        else:
            return Read(reply, spent, completion)
    raise UnreadableOutput(problem, spent)


def _messages(
    system: PromptText, user: Callable[[Marker], PromptText], marker: Marker, problem: str
) -> Sequence[Message]:
    content = user(marker)
    if problem:
        told = instruction("Your last reply could not be read; the note says why. Reply with the JSON object alone.")
        content = join("\n\n", [content, told, render_notes({"E1": UntrustedText(problem)}, marker)])
    return [Message("system", system), Message("user", content)]
