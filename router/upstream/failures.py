"""How calls of the upstream fail, whatever they are made over. What the upstream itself said is not repeated."""

from __future__ import annotations

from typing import ClassVar

from standard.domain.errors import Unavailable


class UpstreamUnavailable(Unavailable):
    """The upstream RAG cannot be reached, refuses, hangs, answers garbage, or is left alone after failing.

    `kind`: connect, timeout, status, refused, malformed, cut, open, busy; `deadline` where the question's own time is
    out, which says nothing of the upstream.
    """

    reason = "UPSTREAM_UNAVAILABLE"
    dependency: ClassVar[str] = "upstream"

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class UpstreamBrokeOff(UpstreamUnavailable):
    """The upstream failed after some of its answer had come."""


class Retryable(Exception):
    """A failure before the first byte that another try may mend."""

    def __init__(self, error: UpstreamUnavailable) -> None:
        super().__init__(error.message)
        self.error = error


class Malformed(Exception):
    """The response is not what the contract says; the message says how, without its text."""


def out_of_time() -> UpstreamUnavailable:
    """The question's own time is out."""
    return UpstreamUnavailable("the question's time left none for the upstream", kind="deadline")


def failure_of(error: TimeoutError | Malformed | UpstreamUnavailable | Retryable) -> UpstreamUnavailable:
    """What a call ended with, as the upstream's failure."""
    match error:
        case UpstreamUnavailable():
            return error
        case Retryable():
            return error.error
        case Malformed():
            return UpstreamUnavailable(f"the upstream is not as its contract says: {error}", kind="malformed")
    return UpstreamUnavailable("the upstream was too slow", kind="timeout")
