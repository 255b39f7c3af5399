"""The OpenAI API's shapes: a Reply as one completion or as the chunks of a stream."""

from __future__ import annotations

import json
from typing import Any

from tests.support.model_server.behaviour import Failure, Reply
from tests.support.model_server.record import Recorded

# What a server may lack, and how real ones say so (status, message, param).
REFUSALS: dict[str, tuple[int, str, str | None]] = {
    "tools": (400, "registry.example/library/tiny:2b does not support tools", None),
    "json_schema": (
        400,
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        "response_format",
    ),
    "json_object": (400, "'response_format.type' must be 'text'", None),
    "stream_options": (
        422,
        "extra_forbidden: body.stream_options.include_usage: Extra inputs are not permitted",
        None,
    ),
    "parallel_tool_calls": (400, "Unrecognized request argument supplied: parallel_tool_calls", None),
    "temperature": (
        400,
        "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) is supported.",
        "temperature",
    ),
    "max_tokens": (
        400,
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "max_tokens",
    ),
    "tool_choice_required": (400, "tool_choice 'required' is not supported; use 'auto' or 'none'", "tool_choice"),
}


def features_used(body: dict[str, Any]) -> set[str]:
    """The optional features a request makes use of."""
    used: set[str] = {
        name for name in ("tools", "stream_options", "parallel_tool_calls", "temperature") if name in body
    }
    if "max_tokens" in body:
        used.add("max_tokens")
    if body.get("tool_choice") == "required":
        used.add("tool_choice_required")
    kind = (body.get("response_format") or {}).get("type")
    if kind in ("json_schema", "json_object"):
        used.add(kind)
    return used


def refusal_of(body: dict[str, Any], lacks: frozenset[str]) -> Failure | None:
    """The error of a server that lacks a feature the request uses."""
    for feature in sorted(features_used(body) & lacks):
        status, message, param = REFUSALS[feature]
        return Failure(status, message, param=param)
    return None


def error_body(failure: Failure) -> bytes:
    """OpenAI's error object."""
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    return json.dumps(
        {"error": {"message": failure.message, "type": kind, "param": failure.param, "code": failure.code}}
    ).encode()


def usage_of(request: Recorded, reply: Reply) -> dict[str, object]:
    """Four characters a token, as nobody bills, but always the same."""
    if not isinstance(reply.usage, bool):
        return dict(reply.usage)
    written = reply.whole() + reply.reasoning + "".join(call.name + call.raw_arguments for call in reply.calls)
    prompt, completion = len(request.text()) // 4 + 3, len(written) // 4 + 1
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def finish_reason(reply: Reply) -> str | None:
    """The finish reason the API states."""
    if reply.finish_reason is not None:
        return reply.finish_reason or None
    return "tool_calls" if reply.calls else "stop"


def completion_body(request: Recorded, reply: Reply) -> dict[str, Any]:
    """A whole chat.completion."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.whole() or None}
    if reply.refusal:
        message["refusal"] = reply.refusal
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    calls = _offered_calls(request, reply)
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish_reason(reply), "logprobs": None}
    body = {**_head(request, "chat.completion"), "choices": [] if reply.empty_choices else [choice]}
    if reply.usage is not False:
        body["usage"] = usage_of(request, reply)
    return body


def opening_chunks(request: Recorded, reply: Reply) -> list[dict[str, Any]]:
    """Chunks before the text: the role, and reasoning where there is some."""
    if reply.empty_choices:
        return []
    chunks = [_chunk(request, {"role": "assistant", "content": ""})]
    if reply.reasoning:
        chunks.append(_chunk(request, {"reasoning_content": reply.reasoning}))
    return chunks


def text_chunk(request: Recorded, piece: str) -> dict[str, Any]:
    """One delta of text."""
    return _chunk(request, {"content": piece})


def call_chunks(request: Recorded, reply: Reply) -> list[dict[str, Any]]:
    """Refusal and tool calls as chunks: name first, arguments in fragments of seven characters."""
    chunks = [_chunk(request, {"refusal": reply.refusal})] if reply.refusal else []
    for index, call in enumerate(_offered_calls(request, reply)):
        function = call["function"]
        head = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        chunks.append(_chunk(request, {"tool_calls": [head]}))
        raw = function["arguments"]
        chunks.extend(
            _chunk(request, {"tool_calls": [{"index": index, "function": {"arguments": raw[start : start + 7]}}]})
            for start in range(0, len(raw), 7)
        )
    return chunks


def closing_chunks(request: Recorded, reply: Reply) -> list[dict[str, Any]]:
    """The finish reason, and usage where it was asked for."""
    chunks = []
    reason = finish_reason(reply)
    if reason and not reply.empty_choices:
        chunks.append(_chunk(request, {}, reason))
    asked = (request.body.get("stream_options") or {}).get("include_usage")
    if asked and reply.usage is not False:
        chunks.append({**_head(request, "chat.completion.chunk"), "choices": [], "usage": usage_of(request, reply)})
    return chunks


def _offered_calls(request: Recorded, reply: Reply) -> list[dict[str, Any]]:
    calls = reply.calls[:1] if request.body.get("parallel_tool_calls") is False else reply.calls
    return [
        {
            "id": f"call_{request.number}_{index}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.raw_arguments},
        }
        for index, call in enumerate(calls)
    ]


def _head(request: Recorded, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{request.number}",
        "object": kind,
        "created": 1_700_000_000,
        "model": request.body.get("model", ""),
    }


def _chunk(request: Recorded, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {
        **_head(request, "chat.completion.chunk"),
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}],
    }
