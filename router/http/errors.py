"""Our errors over HTTP: one reading of the error tree, and the two shapes that are our own.

The tree knows its HTTP status; what only HTTP can say (a body too large, a type we don't read) hangs below it here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from standard.domain.errors import (
    DeadlineExceeded,
    InvalidInput,
    NotFound,
    Overloaded,
    PointsmanError,
    Unauthenticated,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_MESSAGE_CHARS = 1024
_log = structlog.get_logger("pointsman.http")


class BodyTooLarge(InvalidInput):
    """The request's body is beyond http.max_body_bytes."""

    http_status = 413
    reason = "BODY_TOO_LARGE"


class UnsupportedType(InvalidInput):
    """The body is of a type that is not read here."""

    http_status = 415
    reason = "UNSUPPORTED_MEDIA_TYPE"


class SlowSender(DeadlineExceeded):
    """The request did not arrive within http.client_timeout_seconds."""

    http_status = 408
    reason = "REQUEST_TIMEOUT"


class NoSuchPath(NotFound):
    """Nothing is served at this path."""

    reason = "NO_SUCH_PATH"


class MethodNotAllowed(PointsmanError):
    """The path is served, with other methods; `allowed` names them."""

    grpc_code = "UNIMPLEMENTED"
    http_status = 405
    reason = "METHOD_NOT_ALLOWED"

    def __init__(self, method: str, path: str, allowed: str) -> None:
        super().__init__(f"{method} {path}: use {allowed}")
        self.allowed = allowed


class ModelNotFound(NotFound):
    """A model name of the OpenAI façade that means nothing here."""

    reason = "MODEL_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as every façade tells it. `field` is a path in the request, "" where none is to blame."""

    status: int
    reason: str
    message: str
    field: str = ""
    retry_after_seconds: float | None = None
    headers: tuple[tuple[str, str], ...] = ()


def to_problem(error: BaseException) -> Problem:
    """Read an error; whatever is not of our tree is a 500 that says nothing of itself and is logged."""
    if isinstance(error, TimeoutError) and not isinstance(error, PointsmanError):
        error = DeadlineExceeded("the time for this call is used up")
    if not isinstance(error, PointsmanError):
        _log.error("call failed", exc_info=error)
        return Problem(500, PointsmanError.reason, "internal error; the server's log tells more")
    headers: list[tuple[str, str]] = []
    if error.retry_after_seconds is not None:
        seconds = max(1, math.ceil(error.retry_after_seconds))
        # retry-after-ms is what the OpenAI clients read first.
        milliseconds = max(1, math.ceil(error.retry_after_seconds * 1000))
        headers += [("retry-after", str(seconds)), ("retry-after-ms", str(milliseconds))]
    if isinstance(error, MethodNotAllowed):
        headers.append(("allow", error.allowed))
    if isinstance(error, Unauthenticated):
        headers.append(("www-authenticate", "Bearer"))
    if isinstance(error, BodyTooLarge | SlowSender):
        # The rest of the body is not waited for.
        headers.append(("connection", "close"))
    return Problem(
        error.http_status,
        error.reason,
        error.message[:_MESSAGE_CHARS],
        error.field if isinstance(error, InvalidInput) else "",
        error.retry_after_seconds,
        tuple(headers),
    )


def plain_error(problem: Problem) -> dict[str, Any]:
    """The error body of `/query` and of paths that nobody serves."""
    return {
        "error": {
            "reason": problem.reason,
            "message": problem.message,
            "field": problem.field or None,
            "retry_after_seconds": problem.retry_after_seconds,
        }
    }


_OPENAI_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_OPENAI_CODES: Mapping[str, str] = {
    ModelNotFound.reason: "model_not_found",
    NoSuchPath.reason: "unknown_url",
    Overloaded.reason: "rate_limit_exceeded",
    Unauthenticated.reason: "invalid_api_key",
}


def openai_error(problem: Problem) -> dict[str, Any]:
    """The error body of the OpenAI API: `message`, `type`, `param`, `code`."""
    kind = "server_error" if problem.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": problem.message,
            "type": _OPENAI_TYPES.get(problem.status, kind),
            "param": problem.field or None,
            "code": _OPENAI_CODES.get(problem.reason, problem.reason.lower()),
        }
    }
