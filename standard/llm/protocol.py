"""What the rest of the house knows of a language model."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

from standard.domain.answer import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from standard.sandbox.prompt import PromptText


class Purpose(StrEnum):
    """Why a call is made: chooses the model, and is the label `purpose` of the LLM metrics."""

    ANSWER = "answer"
    JUDGE = "judge"
    PLAN = "plan"
    CONTROL = "control"
    COMPRESS = "compress"
    CRITIQUE = "critique"
    CONDENSE = "condense"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call; `parameters` is a JSON Schema object (strict: additionalProperties false)."""

    name: str
    description: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A structured call that the model made. `arguments` is its raw JSON text, not yet validated."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt. `tool_call_id` is set on role tool; `tool_calls` on an assistant message that called."""

    role: Literal["system", "user", "assistant", "tool"]
    content: PromptText
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """One call. `max_tokens` caps the output; `timeout_seconds` the whole call.

    `json_schema` asks for a JSON object of that shape (JSON mode is used where the server has it, the schema is
    described in the prompt by the caller in any case). With `tools`, parallel calls are off; `tool_choice` none takes
    tools away.
    """

    purpose: Purpose
    messages: Sequence[Message]
    max_tokens: int = 1024
    timeout_seconds: float = 60.0
    temperature: float = 0.0
    tools: Sequence[Tool] = field(default_factory=tuple)
    tool_choice: Literal["auto", "required", "none"] = "auto"
    json_schema: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back. `finish_reason` is stop, length, tool_calls, content_filter or cut (the stream broke off).

    `usage` is the server's where it tells, else an estimate (`estimated`), priced from the settings' table.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    estimated: bool = False


class Llm(Protocol):
    """A language model. Every method raises LlmUnavailable and nothing else, and stops the HTTP call when cancelled."""

    async def complete(self, request: LlmRequest) -> Completion:
        """Make one call and wait for all of it."""
        ...

    def stream(self, request: LlmRequest) -> AsyncIterator[str | Completion]:
        """Make one call; yield pieces of text as they arrive, then exactly one Completion with the whole.

        A stream that breaks off after text was yielded ends with a Completion whose finish_reason is `cut`; before any
        text it raises LlmUnavailable.
        """
        ...

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens of `text`, never far below what the server would bill."""
        ...
