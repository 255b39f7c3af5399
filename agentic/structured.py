"""Reading structured output of a model: tolerant of its wrapping, strict about its content."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from standard.domain.answer import Usage
from standard.unicode import encodable, in_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

Model = TypeVar("Model", bound=BaseModel)

_MAX_OUTPUT = 64_000


class UnreadableOutput(Exception):
    """A model's structured output could not be read, also after one attempt to repair it.

    `problem` says why in our own words and never quotes the output; `usage` is what the attempts cost.
    """

    def __init__(self, problem: str, usage: Usage | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.usage = usage or Usage()


def parse_reply(text: str, shape: type[Model], *, finish_reason: str = "stop") -> Model:
    """Find the JSON object in a reply and validate it. Raises UnreadableOutput.

    Code fences and prose around the object are tolerated; of several objects the first that fits the shape is taken.
    """
    if not text.strip():
        raise UnreadableOutput("the reply was empty")
    if len(text) > _MAX_OUTPUT:
        raise UnreadableOutput("the reply was too long")
    problem = "there was no JSON object in the reply"
    for value in _objects(text):
        try:
            return shape.model_validate(value)
        except ValidationError as error:
            problem = describe_problems(error)
    if finish_reason == "length":
        problem = f"the reply was cut off at its length limit ({problem})"
    raise UnreadableOutput(problem)


def describe_problems(error: ValidationError) -> str:
    """Which fields are wrong and how, without their values."""
    problems = [
        f"{'.'.join(str(part) for part in item['loc']) or 'the object'}: {item['msg']}"
        for item in error.errors(include_input=False, include_url=False, include_context=False)[:3]
    ]
    return "; ".join(problems)


def _objects(text: str) -> Iterator[dict[str, object]]:
    """Every JSON object of the text, outermost, in order."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            value = in_texts(value, encodable)  # no state could be kept with the lone surrogates that escapes can spell
        except (json.JSONDecodeError, RecursionError):
            at = text.find("{", at + 1)
            continue
        if isinstance(value, dict):
            yield value
        at = text.find("{", end)
