"""`POST /query`: the gateway's own request and answer as JSON, or its events as SSE or NDJSON, by Accept.

Field names and words are those of the protos and of `--json`.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.v1 import gateway_pb2

from router.grpc.convert import answer_message, event_message
from router.grpc.jsonform import to_json
from router.grpc.validate import identifier
from router.http.asking import answered, replying, streamed, to_checked
from router.http.errors import Problem, plain_error
from router.http.filters import to_filter_message
from router.http.values import a_list, a_mapping, a_number, a_text, a_truth, an_integer, budget_message, only
from router.http.wire import JSON, NDJSON, SSE, accepts, sse_frame, to_json_bytes
from standard.domain.errors import FailedPrecondition, InvalidInput

if TYPE_CHECKING:
    from router.http.asking import Call, HttpParts
    from standard.domain.event import Event

ROUTES: Final = {
    "": gateway_pb2.ROUTE_UNSPECIFIED,
    "auto": gateway_pb2.ROUTE_UNSPECIFIED,
    "standard": gateway_pb2.ROUTE_STANDARD,
    "agentic": gateway_pb2.ROUTE_AGENTIC,
}
_KNOWN: Final = frozenset(
    {
        "question",
        "history",
        "route",
        "threshold",
        "collection",
        "filter",
        "top_k",
        "budget",
        "session_id",
        "request_id",
        "dry_run",
    }
)


async def query(parts: HttpParts, call: Call) -> None:
    """Answer a question, or go on with a run that asked back."""
    if call.body.get("input") is not None:
        await _go_on(parts, call)
        return
    question = to_checked(parts, call, read_query(call.body))
    if not question.request_id:
        question = replace(question, request_id=uuid.uuid4().hex)
    wanted = accepts(call.request.headers)
    if wanted != JSON:
        await streamed(parts, call, question, QueryEvents(wanted))
        return
    answer = await answered(parts, call, question)
    body = to_json_bytes(to_json(answer_message(answer)))
    await call.reply.whole(200, body, JSON, call.headers(question.request_id))


async def _go_on(parts: HttpParts, call: Call) -> None:
    """Go on with the run `request_id`, which waits for `input`."""
    only(call.body, frozenset({"request_id", "input"}))
    run = identifier(a_text(call.body.get("request_id"), "request_id"), "request_id", required=True)
    text = a_text(call.body.get("input"), "input")
    reply = await replying(parts, call, text, run=run)
    if reply is None:
        raise FailedPrecondition(f"no run {run!r} of yours waits for an input")
    wanted = accepts(call.request.headers)
    if wanted != JSON:
        await streamed(parts, call, reply, QueryEvents(wanted))
        return
    answer = await answered(parts, call, reply)
    await call.reply.whole(200, to_json_bytes(to_json(answer_message(answer))), JSON, call.headers(run))


def read_query(body: dict[str, Any]) -> gateway_pb2.AnswerRequest:
    """The request of a body; values are checked with the question."""
    only(body, _KNOWN)
    return gateway_pb2.AnswerRequest(
        question=a_text(body.get("question"), "question"),
        history=[_turn(item, f"history[{index}]") for index, item in enumerate(a_list(body.get("history"), "history"))],
        route=route_named(a_text(body.get("route"), "route"), "route"),
        threshold=a_number(body.get("threshold"), "threshold"),
        collection=a_text(body.get("collection"), "collection"),
        filter=to_filter_message(body.get("filter"), "filter"),
        top_k=an_integer(body.get("top_k"), "top_k") or 0,
        budget=budget_message(body.get("budget"), "budget"),
        session_id=a_text(body.get("session_id"), "session_id"),
        request_id=a_text(body.get("request_id"), "request_id"),
        dry_run=a_truth(body.get("dry_run"), "dry_run"),
    )


def route_named(word: str, field: str) -> gateway_pb2.Route.ValueType:
    """A route by its word."""
    route = ROUTES.get(word)
    if route is None:
        raise InvalidInput(field, f"{word[:40]!r} is no route; use auto, standard or agentic")
    return route


def _turn(value: object, field: str) -> gateway_pb2.Turn:
    turn = a_mapping(value, field)
    only(turn, frozenset({"role", "text"}), field)
    role, text = a_text(turn.get("role"), f"{field}.role"), a_text(turn.get("text"), f"{field}.text")
    return gateway_pb2.Turn(role=role, text=text)


class QueryEvents:
    """Events as they are: SSE named by their kind and numbered by their sequence, or one JSON object a line."""

    def __init__(self, media: str) -> None:
        self.content_type = media
        self._sse = media == SSE
        self.heartbeat = b": heartbeat\n\n" if self._sse else b""
        assert media in {SSE, NDJSON}  # noqa: S101 - `accepts` knows no other

    def event(self, event: Event) -> bytes:
        """An event."""
        message = event_message(event)
        data = to_json_bytes(to_json(message))
        if not self._sse:
            return data + b"\n"
        return sse_frame(data, event=message.WhichOneof("body") or "event", sequence=event.sequence)

    def failure(self, problem: Problem) -> bytes:
        """The error, in the shape of an error response."""
        data = to_json_bytes(plain_error(problem))
        return sse_frame(data, event="error") if self._sse else data + b"\n"
