"""Recorded exchanges: one JSON object a line, a request and the response that the legacy endpoint gave.

    {"id": "1", "request": {"method": "POST", "path": "/ask", "headers": {}, "body": {…}},
     "response": {"status": 200, "headers": {"content-type": "application/json"}, "body": {…}, "seconds": 1.2}}

A response has `body` (JSON) or `text` (anything else; a stream as it came over the wire).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from router.http.values import a_mapping, a_number, a_text, an_integer
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

_METHODS = frozenset({"GET", "POST", "PUT"})
_NOT_SENT = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "authorization", "cookie", "accept-encoding"}
)
"""Headers that belong to the recorded connection, or that another server must not see."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response: `seconds` until its end and `first_seconds` until its first byte, None where not measured."""

    status: int
    content_type: str
    text: str
    seconds: float | None = None
    first_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and the response it had."""

    id: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    response: Response


def to_exchange(row: Mapping[str, Any]) -> Exchange:
    """Check a line. Raises InvalidInput naming what is wrong."""
    request = a_mapping(row.get("request"), "request")
    method = a_text(request.get("method", "POST"), "request.method").upper()
    if method not in _METHODS:
        raise InvalidInput("request.method", f"{method[:20]!r} is not replayed; use GET, POST or PUT")
    path = a_text(request.get("path"), "request.path")
    if not path.startswith("/") or path.startswith("//") or any(ord(character) < 33 for character in path):
        raise InvalidInput("request.path", "must begin with one / and hold no blanks")
    headers = {
        name.lower(): a_text(value, f"request.headers.{name}")
        for name, value in a_mapping(request.get("headers"), "request.headers").items()
    }
    for name, value in headers.items():
        if not name.isascii() or not (name + value).isprintable():
            raise InvalidInput(f"request.headers.{name[:40]!a}", "holds what no header can")
    return Exchange(
        id=str(row["id"]),
        method=method,
        path=path,
        headers={name: value for name, value in headers.items() if name not in _NOT_SENT},
        body=request.get("body"),
        response=_response(a_mapping(row.get("response"), "response")),
    )


def _response(given: dict[str, Any]) -> Response:
    status = an_integer(given.get("status", 200), "response.status") or 0
    if not 100 <= status <= 599:
        raise InvalidInput("response.status", f"{status} is no HTTP status")
    headers = {name.lower(): value for name, value in a_mapping(given.get("headers"), "response.headers").items()}
    if ("body" in given) == ("text" in given):
        raise InvalidInput("response", "must have either body (JSON) or text")
    if "body" in given:
        content_type, text = "application/json", json.dumps(given["body"])
    else:
        content_type, text = "text/plain", a_text(given["text"], "response.text")
    return Response(
        status,
        a_text(headers.get("content-type", content_type), "response.headers.content-type"),
        text,
        a_number(given.get("seconds"), "response.seconds"),
        a_number(given.get("first_seconds"), "response.first_seconds"),
    )
