"""The chat completions API as data: a request's body, and what a response of any shape holds. Pure.

Servers differ in what they leave out, so nothing is assumed of a response but that it is JSON; what is not as it should
be is skipped, and where nothing usable is left `Malformed` is raised.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from standard.domain.answer import Usage
from standard.llm.capabilities import Feature
from standard.llm.protocol import ToolCall
from standard.llm.reasoning import ReasoningFilter
from standard.llm.tokens import estimate_tokens
from standard.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from standard.llm.protocol import LlmRequest, Message

_MAX_TOOL_CALLS = 32
_FINISH_REASONS = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class Malformed(Exception):
    """The response holds no completion."""


def features_of(request: LlmRequest, *, stream: bool) -> frozenset[Feature]:
    """The optional features this request would use on a server that has them all."""
    used = {Feature.TEMPERATURE, Feature.MAX_TOKENS}
    if stream:
        used.add(Feature.STREAM_USAGE)
    if request.tools and request.tool_choice != "none":
        used |= {Feature.TOOLS, Feature.PARALLEL_TOOL_CALLS}
        if request.tool_choice == "required":
            used.add(Feature.TOOL_CHOICE_REQUIRED)
    if request.json_schema is not None:
        used |= {Feature.JSON_SCHEMA, Feature.JSON_OBJECT}
    return frozenset(used)


def in_effect(features: frozenset[Feature]) -> frozenset[Feature]:
    """Those of `features` that a request shows: JSON mode stands in only for schemas, details of tools need tools."""
    hidden = {Feature.JSON_OBJECT} if Feature.JSON_SCHEMA in features else set()
    if Feature.TOOLS not in features:
        hidden |= {Feature.PARALLEL_TOOL_CALLS, Feature.TOOL_CHOICE_REQUIRED}
    return features - hidden


def request_body(request: LlmRequest, model: str, features: frozenset[Feature], *, stream: bool) -> dict[str, object]:
    """The JSON body of a call that uses only `features`."""
    body: dict[str, object] = {
        "model": model,
        "messages": [_message(message, with_tools=Feature.TOOLS in features) for message in request.messages],
        "max_tokens" if Feature.MAX_TOKENS in features else "max_completion_tokens": request.max_tokens,
    }
    if Feature.TEMPERATURE in features:
        body["temperature"] = request.temperature
    if stream:
        body["stream"] = True
        if Feature.STREAM_USAGE in features:
            body["stream_options"] = {"include_usage": True}
    if Feature.TOOLS in features:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
        body["tool_choice"] = "required" if Feature.TOOL_CHOICE_REQUIRED in features else "auto"
        if Feature.PARALLEL_TOOL_CALLS in features:
            body["parallel_tool_calls"] = False
    if request.json_schema is not None:
        if Feature.JSON_SCHEMA in features:
            schema = {"name": "reply", "schema": request.json_schema, "strict": _strict(request.json_schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif Feature.JSON_OBJECT in features:
            body["response_format"] = {"type": "json_object"}
    return body


def _message(message: Message, *, with_tools: bool) -> dict[str, object]:
    content = encodable(message.content.value)
    if message.role == "tool" and with_tools:
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
    if message.role == "tool":
        return {"role": "user", "content": content}
    if message.tool_calls and with_tools:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
        return {"role": message.role, "content": content or None, "tool_calls": calls}
    if message.tool_calls:
        calls_as_text = "\n".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
        return {"role": message.role, "content": f"{content}\n{calls_as_text}".strip()}
    return {"role": message.role, "content": content}


def _strict(schema: object) -> bool:
    """Whether a schema keeps to the subset that strict mode accepts: closed objects with every property required."""
    if isinstance(schema, list):
        return all(_strict(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False
        or not isinstance(properties, dict)
        or set(properties) != set(schema.get("required", ()))
    ):
        return False
    return all(_strict(part) for part in schema.values())


def estimate_input(request: LlmRequest) -> int:
    """Tokens of the prompt where the server does not tell: text, four a message for its frame, tools as JSON."""
    text = sum(estimate_tokens(message.content.value) + 4 for message in request.messages)
    calls = sum(
        estimate_tokens(call.name + call.arguments) + 8 for message in request.messages for call in message.tool_calls
    )
    offered = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    schema = request.json_schema
    extras = estimate_tokens(json.dumps(offered)) if offered else 0
    return text + calls + extras + (estimate_tokens(json.dumps(schema)) if schema is not None else 0)


@dataclass(slots=True)
class _CallInProgress:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class Assembler:
    """Puts a response together, from one body or from the chunks of a stream.

    `begun` is true once anything of the answer came, reasoning included; `finish_reason` is "" until it was told;
    `length` counts code points of text and reasoning.
    """

    def __init__(self) -> None:
        self.begun = False
        self.finish_reason = ""
        self.usage: Usage | None = None
        self.length = 0
        self._pieces: list[str] = []
        self._calls: list[_CallInProgress] = []
        self._reasoning_length = 0
        self._filter = ReasoningFilter()
        self._seen_choice = False
        self._refused = False

    def read_body(self, body: object) -> None:
        """Read a whole chat.completion."""
        self._read(body, "message")
        self._pieces.append(self._filter.finish())

    def read_chunk(self, chunk: object) -> str:
        """Read one chunk of a stream; the text it adds, maybe empty."""
        return self._read(chunk, "delta")

    def finish(self) -> str:
        """End the stream; text that was held back until now. Raises Malformed where no choice ever came."""
        rest = self._filter.finish()
        self._pieces.append(rest)
        if not self._seen_choice:
            raise Malformed("no choices in the response")
        return rest

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._pieces)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls so far; one without a name is no call."""
        return tuple(
            ToolCall(call.id or f"call_{index}", call.name, "".join(call.arguments))
            for index, call in enumerate(self._calls)
            if call.name
        )

    def estimated_output(self) -> int:
        """Tokens written, where the server does not tell."""
        calls = sum(estimate_tokens(call.name + "".join(call.arguments)) + 4 for call in self._calls)
        return estimate_tokens(self.text) + calls + self._reasoning_length // 3

    def _read(self, value: object, part: str) -> str:
        if not isinstance(value, dict):
            raise Malformed("not a JSON object")
        usage = _usage(value.get("usage"))
        self.usage = usage or self.usage
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            if part == "message":
                raise Malformed("no choices in the response")
            return ""
        self._seen_choice = True
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason and not self._refused:
            self.finish_reason = _FINISH_REASONS.get(reason, "stop")
        message = choice.get(part)
        if not isinstance(message, dict):
            return ""
        self._read_calls(message.get("tool_calls"))
        return self._read_text(message)

    def _read_text(self, message: Mapping[str, object]) -> str:
        for name in ("reasoning_content", "reasoning"):
            thought = message.get(name)
            if isinstance(thought, str) and thought:
                self.begun = True
                self.length += len(thought)
                self._reasoning_length += len(thought)
        content = _text_of(message.get("content"))
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            self.finish_reason = "content_filter"
            content += refusal
        if not content:
            return ""
        self.begun = True
        self.length += len(content)
        visible = self._filter.feed(content)
        self._reasoning_length += len(content) - len(visible)
        self._pieces.append(visible)
        return visible

    def _read_calls(self, calls: object) -> None:
        if not isinstance(calls, list):
            return
        for place, call in enumerate(calls):
            if not isinstance(call, dict):
                continue
            self.begun = True
            function = call.get("function")
            if not isinstance(function, dict):
                function = {}
            current = self._call_at(call, place)
            if current is None:
                continue
            name, arguments = function.get("name"), function.get("arguments")
            if isinstance(name, str) and name:
                current.name = name
            if isinstance(arguments, str):
                current.arguments.append(arguments)
            elif isinstance(arguments, dict):
                current.arguments.append(json.dumps(arguments))

    def _call_at(self, call: Mapping[str, object], place: int) -> _CallInProgress | None:
        index, identity = call.get("index"), call.get("id")
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < _MAX_TOOL_CALLS:
            index = place
        identity = identity if isinstance(identity, str) else ""
        # Some servers number every call of a stream 0 and tell them apart by id alone.
        while index < len(self._calls) and identity and self._calls[index].id not in ("", identity):
            index += 1
        if index >= _MAX_TOOL_CALLS:
            return None
        while len(self._calls) <= index:
            self._calls.append(_CallInProgress())
        self._calls[index].id = self._calls[index].id or identity
        return self._calls[index]


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):  # parts: text beside thoughts, images and the like
        texts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
        return "".join(text for text in texts if isinstance(text, str))
    return ""


def _usage(value: object) -> Usage | None:
    """The usage a server told; None where it told none worth the name."""
    if not isinstance(value, dict):
        return None
    prompt, completion = _count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))
    if not prompt:
        return None
    details = value.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    cached = cached or _count(value.get("prompt_cache_hit_tokens"))
    return Usage(prompt, completion, min(cached, prompt), llm_calls=1)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
