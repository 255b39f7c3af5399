"""What a model server can do, learned from what it refuses.

No list of servers and their features stays true, so a request uses everything it has a use for, and a refusal that
names a feature is remembered (for a while: servers are upgraded) and the call made again without it. Real refusals this
was written against: Ollama ("… does not support tools"), vLLM ('"auto" tool choice requires …'), OpenAI ("Unsupported
parameter: 'max_tokens' …", "'response_format' of type 'json_schema' is not supported …"), LM Studio
("'response_format.type' must be 'json_schema'"), Mistral (422, body.stream_options: extra_forbidden), Azure
("Unrecognized request argument supplied: parallel_tool_calls").
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Feature(StrEnum):
    """An optional part of the API that a request may use."""

    PARALLEL_TOOL_CALLS = "parallel_tool_calls"
    STREAM_USAGE = "stream_usage"
    TOOL_CHOICE_REQUIRED = "tool_choice_required"
    TOOLS = "tools"
    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    TEMPERATURE = "temperature"
    MAX_TOKENS = "max_tokens"


# Most telling words first: a refusal of parallel_tool_calls also has the word "tool" in it.
_NAMED_BY: tuple[tuple[Feature, tuple[str, ...]], ...] = (
    (Feature.PARALLEL_TOOL_CALLS, ("parallel_tool_calls", "parallel tool calls")),
    (Feature.STREAM_USAGE, ("stream_options", "include_usage")),
    (Feature.TOOL_CHOICE_REQUIRED, ("tool_choice", "tool choice")),
    (Feature.TOOLS, ("tool", "function calling", "function_call", "functions")),
    (Feature.JSON_SCHEMA, ("json_schema", "response_format", "structured output", "guided", "grammar")),
    (Feature.JSON_OBJECT, ("json_object", "response_format", "json mode")),
    (Feature.TEMPERATURE, ("temperature",)),
    (Feature.MAX_TOKENS, ("max_tokens", "max_completion_tokens")),
)
_REFUSES = (400, 404, 415, 422, 500, 501)
# A server error names a feature by accident only too easily: there the words must say that it is not to be had.
_SAYS_MISSING = ("not support", "unsupported", "requires", "not implemented", "not enabled", "unrecognized", "unknown")


def blamed_feature(status: int | None, message: str, used: Iterable[Feature]) -> Feature | None:
    """The feature a refusal names, among those the request used; None where it names none."""
    if status not in _REFUSES:
        return None
    text = message.lower()
    if status >= 500 and not any(words in text for words in _SAYS_MISSING):
        return None
    in_use = frozenset(used)
    return next(
        (feature for feature, names in _NAMED_BY if feature in in_use and any(name in text for name in names)), None
    )


class Capabilities:
    """Which features a model was seen to lack; forgotten after `memory_seconds`, so that an upgrade is noticed."""

    def __init__(self, clock: Callable[[], float], memory_seconds: float = 900.0) -> None:
        self._clock = clock
        self._memory_seconds = memory_seconds
        self._missing: dict[tuple[str, Feature], float] = {}

    def missing(self, model: str) -> frozenset[Feature]:
        """Features that requests to `model` do without for now."""
        if not self._missing:
            return frozenset()
        now = self._clock()
        return frozenset(feature for (name, feature), until in self._missing.items() if name == model and until > now)

    def learn(self, model: str, missing: Iterable[Feature]) -> None:
        """Remember what a call succeeded without."""
        until = self._clock() + self._memory_seconds
        self._missing.update(dict.fromkeys(((model, feature) for feature in missing), until))
