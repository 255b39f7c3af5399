"""`/v1/chat/completions` as the OpenAI API has it: messages in, one choice out, whole or as chunks.

The last message is the question, those before it are the history. System and developer messages are read and not
followed: what the answer rests on and what its prompt says is the gateway's own (see docs/http.md); a notice says so.
"""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pointsman.v1 import gateway_pb2

from router.grpc.validate import identifier
from router.http.asking import answered, collected, replying, streamed, to_checked
from router.http.errors import ModelNotFound, Problem, openai_error
from router.http.filters import to_filter_message
from router.http.values import (
    a_list,
    a_mapping,
    a_number,
    a_text,
    a_truth,
    an_integer,
    budget_message,
    only,
)
from router.http.wire import JSON, SSE, sse_frame, to_json_bytes
from standard.domain.answer import Outcome
from standard.domain.errors import InvalidInput
from standard.domain.event import CitationMade, ClarificationAsked, Completed, TokenEmitted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.http.asking import Call, HttpParts, Replying, Work
    from standard.domain.answer import Answer, Citation
    from standard.domain.event import Event
    from standard.domain.question import Question

MODELS: Final[dict[str, gateway_pb2.Route.ValueType]] = {
    "pointsman": gateway_pb2.ROUTE_UNSPECIFIED,
    "pointsman-standard": gateway_pb2.ROUTE_STANDARD,
    "pointsman-agentic": gateway_pb2.ROUTE_AGENTIC,
}
"""Model names and the route each forces."""

_OURS: Final = frozenset({"collection", "top_k", "filter", "threshold", "budget", "session_id", "steps", "run"})
_OVERLOOKED: Final = re.compile(r"[\t\n\r]")
_BLANK: Final = "".join(map(chr, range(0x21)))
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FOLLOWED: Final = frozenset({"http", "https", "urn", "file"})
_SYSTEM_NOTICE: Final = "system messages are not followed: the gateway's own instructions apply"


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat request: its question, the model it named, and how it wants to be answered."""

    question: Question
    model: str
    stream: bool
    usage: bool
    steps: bool
    created: int
    notices: tuple[str, ...]
    run: str = ""
    """The run that the caller says asked back; may be empty."""


async def chat_completions(parts: HttpParts, call: Call) -> None:
    """Answer a chat request, or go on with the run that its last message answers."""
    chat = read_chat(parts, call)
    work: Work = chat.question
    if reply := await _replying(parts, call, chat):
        work, chat = reply, replace(chat, question=replace(chat.question, request_id=reply.request_id))
    run_id = chat.question.request_id
    if chat.stream:
        await streamed(parts, call, work, ChatChunks(chat))
        return
    if chat.steps:
        events, answer = await collected(parts, call, work)
        body = completion(chat, answer, steps=[line for event in events if (line := step_line(event))])
    else:
        answer = await answered(parts, call, work)
        body = completion(chat, answer)
    await call.reply.whole(200, to_json_bytes(body), JSON, call.headers(run_id))


async def _replying(parts: HttpParts, call: Call, chat: Chat) -> Replying | None:
    """What the last message answers, where a run asked back: the one that is named, or the session's latest.

    A name is a hint, so that clients may hand back the one of every reply: where that run does not wait for an answer,
    the message is a question like any other. A session's run is meant only where the message before the last is what it
    asked.
    """
    question, history = chat.question, chat.question.history
    said = history[-1].text.raw if history and history[-1].role == "assistant" else ""
    if not chat.run and not (question.session_id and said):
        return None
    return await replying(parts, call, question.text.raw, run=chat.run, session_id=question.session_id, said=said)


def read_chat(parts: HttpParts, call: Call) -> Chat:
    """Check a chat request. Raises ModelNotFound, and InvalidInput naming the parameter."""
    body = call.body
    model = model_named(body.get("model"))
    _refuse_what_is_not_done(body)
    history, question, notices = read_messages(body.get("messages"))
    headers = call.request.headers
    ours = a_mapping(body.get("pointsman"), "pointsman")
    only(ours, _OURS, "pointsman")
    request = gateway_pb2.AnswerRequest(
        question=question,
        history=history,
        route=MODELS[model],
        collection=a_text(ours.get("collection"), "pointsman.collection") or headers.get("x-pointsman-collection", ""),
        top_k=an_integer(ours.get("top_k"), "pointsman.top_k") or 0,
        filter=to_filter_message(ours.get("filter"), "pointsman.filter"),
        threshold=a_number(ours.get("threshold"), "pointsman.threshold"),
        budget=budget_message(ours.get("budget"), "pointsman.budget"),
        session_id=a_text(ours.get("session_id"), "pointsman.session_id") or headers.get("x-pointsman-session", ""),
    )
    checked = to_checked(parts, call, request)
    if not checked.request_id:
        checked = replace(checked, request_id=uuid.uuid4().hex)
    options = a_mapping(body.get("stream_options"), "stream_options")
    wanted = headers.get("x-pointsman-steps", "").lower() in {"1", "true", "yes"}
    return Chat(
        checked,
        model,
        stream=a_truth(body.get("stream"), "stream"),
        usage=a_truth(options.get("include_usage"), "stream_options.include_usage"),
        steps=a_truth(ours.get("steps"), "pointsman.steps") or wanted,
        created=int(time.time()),
        notices=notices,
        run=identifier(a_text(ours.get("run"), "pointsman.run") or headers.get("x-pointsman-run", ""), "pointsman.run"),
    )


def model_named(value: object) -> str:
    """One of our models' names."""
    model = a_text(value, "model")
    if not model:
        raise InvalidInput("model", f"is missing; use one of {', '.join(MODELS)}")
    if model not in MODELS:
        raise ModelNotFound(f"the model {model[:80]!r} does not exist; use one of {', '.join(MODELS)}")
    return model


def _refuse_what_is_not_done(body: dict[str, Any]) -> None:
    """What would change the shape of the reply is refused; what only steers sampling is ignored."""
    for name in ("tools", "functions"):
        if a_list(body.get(name), name):
            raise InvalidInput(name, "is not supported: the gateway searches by itself")
    if an_integer(body.get("n"), "n") not in {None, 1}:
        raise InvalidInput("n", "must be 1: there is one answer")
    if a_truth(body.get("logprobs"), "logprobs"):
        raise InvalidInput("logprobs", "is not supported")
    kind = a_mapping(body.get("response_format"), "response_format").get("type", "text")
    if kind != "text":
        raise InvalidInput("response_format", "must be of type text: answers are prose with citations")
    modalities = a_list(body.get("modalities"), "modalities")
    if modalities not in ([], ["text"]):
        raise InvalidInput("modalities", "must be text alone")


def read_messages(value: object) -> tuple[list[gateway_pb2.Turn], str, tuple[str, ...]]:
    """(history, question, notices) of a list of messages."""
    messages = a_list(value, "messages")
    if not messages:
        raise InvalidInput("messages", "is missing or empty")
    turns: list[gateway_pb2.Turn] = []
    notices: tuple[str, ...] = ()
    for index, item in enumerate(messages):
        field = f"messages[{index}]"
        message = a_mapping(item, field)
        role = a_text(message.get("role"), f"{field}.role")
        if role in {"system", "developer"}:
            content_text(message.get("content"), f"{field}.content")
            notices = (_SYSTEM_NOTICE,)
        elif role in {"user", "assistant"}:
            turns.append(gateway_pb2.Turn(role=role, text=content_text(message.get("content"), f"{field}.content")))
        else:
            raise InvalidInput(f"{field}.role", f"{role[:40]!r} is not supported; use system, user or assistant")
    if not turns or turns[-1].role != "user":
        raise InvalidInput("messages", "must end with a message of the user: it is the question")
    return turns[:-1], turns[-1].text, notices


def content_text(value: object, field: str) -> str:
    """A message's text: a string, or the text parts of a list; null is empty."""
    if value is None or isinstance(value, str):
        return value or ""
    pieces: list[str] = []
    for index, item in enumerate(a_list(value, field)):
        part = a_mapping(item, f"{field}[{index}]")
        if part.get("type") not in {"text", "input_text", "refusal"}:
            raise InvalidInput(f"{field}[{index}].type", "must be text; nothing else is read here")
        pieces.append(a_text(part.get("text", part.get("refusal")), f"{field}[{index}].text"))
    return "\n".join(pieces)


def completion(chat: Chat, answer: Answer, *, steps: Iterable[str] = ()) -> dict[str, Any]:
    """A whole `chat.completion`."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content_of(answer),
        "refusal": None,
        "annotations": [annotation(citation) for citation in answer.citations],
    }
    if lines := "\n".join(steps):
        message["reasoning_content"] = lines
    return {
        "id": f"chatcmpl-{answer.request_id}",
        "object": "chat.completion",
        "created": chat.created,
        "model": chat.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(answer), "logprobs": None}],
        "usage": usage(answer),
        "system_fingerprint": None,
        "pointsman": about(chat, answer),
    }


class ChatChunks:
    """A run as `chat.completion.chunk`s, `data: [DONE]` at the end. Steps come as `reasoning_content`."""

    content_type = SSE
    heartbeat = b": heartbeat\n\n"

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._base = {
            "id": f"chatcmpl-{chat.question.request_id}",
            "object": "chat.completion.chunk",
            "created": chat.created,
            "model": chat.model,
            "system_fingerprint": None,
        }
        self._written: list[str] = []
        self._opened = False

    def event(self, event: Event) -> bytes:
        """The chunks of an event."""
        opening = b"" if self._opened else self._chunk({"role": "assistant", "content": "", "refusal": None})
        self._opened = True
        return opening + self._of(event)

    def _of(self, event: Event) -> bytes:
        match event.body:
            case TokenEmitted(text=text):
                self._written.append(text)
                return self._chunk({"content": text})
            case CitationMade(citation=citation):
                return self._chunk({"annotations": [annotation(citation)]})
            case Completed(answer=answer):
                return self._end(answer)
        line = step_line(event) if self._chat.steps else ""
        return self._chunk({"reasoning_content": line + "\n"}) if line else b""

    def _end(self, answer: Answer) -> bytes:
        written, whole = "".join(self._written), content_of(answer)
        rest = whole.removeprefix(written) if whole.startswith(written) else ""
        frames = self._chunk({"content": rest}) if rest else b""
        frames += self._chunk({}, finish=finish_reason(answer), pointsman=about(self._chat, answer))
        if self._chat.usage:
            frames += sse_frame(to_json_bytes({**self._base, "choices": [], "usage": usage(answer)}))
        return frames + sse_frame(b"[DONE]")

    def _chunk(self, delta: dict[str, Any], *, finish: str | None = None, **more: object) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        chunk: dict[str, Any] = {**self._base, "choices": [choice]}
        if self._chat.usage:
            chunk["usage"] = None
        return sse_frame(to_json_bytes({**chunk, **more}))

    def failure(self, problem: Problem) -> bytes:
        """An error object, which the clients raise; no [DONE] follows."""
        return sse_frame(to_json_bytes(openai_error(problem)))


def step_line(event: Event) -> str:
    """An event as a line of progress; empty for what is part of the answer."""
    if isinstance(event.body, TokenEmitted | CitationMade | Completed | ClarificationAsked):
        return ""
    return event.text


def content_of(answer: Answer) -> str:
    """What the user reads: the answer, or the question that comes back."""
    return answer.text or answer.clarification


def finish_reason(answer: Answer) -> str:
    """`stop`, or `content_filter` for an answer that was withheld."""
    return "content_filter" if answer.outcome is Outcome.BLOCKED else "stop"


def annotation(citation: Citation) -> dict[str, Any]:
    """A citation as a url_citation; where the document has no address that may be followed it is named as a URN."""
    url = followable(citation.uri) or f"urn:pointsman:passage:{quote(citation.passage_id, safe='')}"
    return {
        "type": "url_citation",
        "url_citation": {
            "start_index": citation.answer_start,
            "end_index": citation.answer_end,
            "title": citation.title or citation.document_id,
            "url": url,
        },
    }


def followable(uri: str) -> str:
    """A document's address where a client may make a link of it: http, https, urn, file or relative; else ""."""
    # Browsers overlook these, so `java\tscript:` is a script to them.
    address = _OVERLOOKED.sub("", uri).strip(_BLANK)
    scheme = _SCHEME.match(address)
    return address if scheme is None or scheme[1].lower() in _FOLLOWED else ""


def usage(answer: Answer) -> dict[str, Any]:
    """Billed tokens of all calls of the run."""
    spent = answer.usage
    return {
        "prompt_tokens": spent.input_tokens,
        "completion_tokens": spent.output_tokens,
        "total_tokens": spent.billed_tokens,
        "prompt_tokens_details": {"cached_tokens": spent.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def about(chat: Chat, answer: Answer) -> dict[str, Any]:
    """What only this gateway has to tell, in a field of its own that other clients skip."""
    decision = answer.decision
    return {
        "request_id": answer.request_id,
        "route": answer.route.value,
        "decision": {
            "route": decision.route.value,
            "reason": decision.reason.value,
            "complex_probability": decision.complex_probability,
            "threshold": decision.threshold,
        },
        "outcome": answer.outcome.value if answer.outcome else None,
        "stop_reason": answer.stop_reason.value if answer.stop_reason else None,
        "answer_source": answer.source.value,
        "steps": answer.steps,
        "cost_usd": answer.usage.cost_usd,
        "notices": [*answer.notices, *chat.notices],
    }
