"""A call of the language model as a span, by the conventions for generative AI (standard.semconv)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from standard import semconv, spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.domain.answer import Usage
    from standard.llm.protocol import Completion, LlmRequest, Message
    from standard.spans import Span, Value


def begin_chat(request: LlmRequest, model: str, base_url: str, *, stream: bool) -> Span:
    """Begin the span of a call; whoever began it ends it by `end_chat`. The place alone where nothing is recorded."""
    above = spans.recording()
    if above is None:
        return spans.current() or spans.NOWHERE
    url = urlsplit(base_url)
    attributes: dict[str, Value] = {
        semconv.OPERATION: semconv.CHAT,
        semconv.PROVIDER: semconv.OPENAI,
        semconv.REQUEST_MODEL: model,
        semconv.REQUEST_MAX_TOKENS: request.max_tokens,
        semconv.REQUEST_TEMPERATURE: request.temperature,
        semconv.REQUEST_STREAM: stream,
        semconv.OUTPUT_TYPE: "text" if request.json_schema is None else "json",
        semconv.SERVER_ADDRESS: url.hostname or "",
        semconv.SERVER_PORT: url.port or (443 if url.scheme == "https" else 80),
        "pointsman.purpose": request.purpose.value,
    }
    opened = spans.begin(f"{semconv.CHAT} {model}", attributes, client=True)
    if opened.content:
        opened.set(semconv.INPUT_MESSAGES, _json([_message(each) for each in request.messages]))
    return opened


def end_chat(opened: Span, usage: Usage, completion: Completion | None, attempts: int, error_kind: str) -> None:
    """End the span of a call. `completion` is None where there is none, `error_kind` "" for a whole answer."""
    if not opened.recording:
        return
    opened.set(semconv.INPUT_TOKENS, usage.input_tokens)
    opened.set(semconv.OUTPUT_TOKENS, usage.output_tokens)
    if usage.cached_tokens:
        opened.set(semconv.CACHED_TOKENS, usage.cached_tokens)
    if attempts != 1:
        opened.set("pointsman.attempts", attempts)
    if completion is not None:
        opened.set(semconv.FINISH_REASONS, [completion.finish_reason])
        if opened.content:
            opened.set(semconv.OUTPUT_MESSAGES, _json([_answer(completion)]))
    if error_kind:
        opened.fail(error_kind)
    opened.end()


def _message(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.content.value}]
    if message.role == "tool":
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.content.value}]
    return {"role": message.role, "parts": [*parts, *_calls(message.tool_calls)]}


def _answer(completion: Completion) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": completion.text}] if completion.text else []
    reason = completion.finish_reason
    return {"role": "assistant", "parts": [*parts, *_calls(completion.tool_calls)], "finish_reason": reason}


def _calls(calls: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
