"""Where in a call the work is: the span that is open here, inherited by every task that is begun within it.

What goes wrong without it: an answer takes nine seconds and nobody can say whether it waited for a place, a connection,
the database or the model. Code opens spans by `span`; whether anything is recorded, how and where to, is known to the
composition root alone (router.telemetry.tracing), which puts a Span there. Where nothing is recorded a span costs one
look at a context variable. Names and attributes are those of standard.semconv.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

Value: TypeAlias = "str | int | float | bool | Sequence[str]"
"""What an attribute may hold."""
_NONE: Final[Mapping[str, Value]] = {}
_LEAST_WAIT_NS: Final = 1_000_000
"""Waits shorter than a millisecond are not worth a span."""


class Span(Protocol):
    """One piece of work of a trace, or, where `recording` is False, the mere place in a trace."""

    @property
    def recording(self) -> bool:
        """Whether anything that is written on it is kept."""
        ...

    @property
    def content(self) -> bool:
        """Whether questions, prompts, passages and answers may be written on it."""
        ...

    @property
    def trace_id(self) -> str:
        """32 hex digits."""
        ...

    @property
    def span_id(self) -> str:
        """16 hex digits."""
        ...

    def child(self, name: str, attributes: Mapping[str, Value], *, client: bool, began_ns: int | None) -> Span:
        """Begin a span below this one; `client` for a call of another service, `began_ns` (Unix) where it is older."""
        ...

    def set(self, key: str, value: Value) -> None:
        """Write an attribute."""
        ...

    def note(self, name: str, attributes: Mapping[str, Value]) -> None:
        """Write that something happened at this moment."""
        ...

    def link(self, traceparent: str) -> None:
        """Point to a span of another trace, or of an earlier attempt."""
        ...

    def fail(self, kind: str) -> None:
        """Say that it failed; `kind` is one of few (error.type)."""
        ...

    def end(self) -> None:
        """It is over."""
        ...

    def headers(self) -> Mapping[str, str]:
        """W3C trace context for a call that is made within it: traceparent, and tracestate where there is one."""
        ...


class Place:
    """A place in a trace of which nothing is recorded here: it is not sampled, or only passed on."""

    __slots__ = ("_headers", "span_id", "trace_id")
    recording: Final = False
    content: Final = False

    def __init__(self, trace_id: str = "", span_id: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self._headers: Mapping[str, str] = headers or {}

    def child(self, name: str, attributes: Mapping[str, Value], *, client: bool, began_ns: int | None) -> Span:  # noqa: ARG002
        """Itself."""
        return self

    def set(self, key: str, value: Value) -> None:
        """Do nothing."""

    def note(self, name: str, attributes: Mapping[str, Value]) -> None:
        """Do nothing."""

    def link(self, traceparent: str) -> None:
        """Do nothing."""

    def fail(self, kind: str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def headers(self) -> Mapping[str, str]:
        """What is passed on."""
        return self._headers


NOWHERE: Final[Span] = Place()
"""Outside of any trace."""
_current: ContextVar[Span | None] = ContextVar("span", default=None)


def current() -> Span | None:
    """The span that is open here."""
    return _current.get()


def enter(span: Span | None) -> None:
    """Make a span the one of this task, and of those that it begins from now on."""
    _current.set(span)


def outgoing() -> Mapping[str, str]:
    """Headers of a call that is made here; none outside of a trace."""
    span = _current.get()
    return _NONE_HEADERS if span is None else span.headers()


_NONE_HEADERS: Final[Mapping[str, str]] = {}


def recording() -> Span | None:
    """The span that is open here, if what is written on it is kept."""
    span = _current.get()
    return span if span is not None and span.recording else None


def begin(name: str, attributes: Mapping[str, Value] = _NONE, *, client: bool = False) -> Span:
    """Begin a span without making it the current one; whoever began it ends it.

    For generators: what they make current would be current in their reader as well.
    """
    above = _current.get()
    if above is None:
        return NOWHERE
    return above.child(name, attributes, client=client, began_ns=None) if above.recording else above


def failure(error: BaseException) -> str:
    """What kind of failure an error is, for error.type: `cancelled`, the reason of an error of ours, or its class."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "cancelled"
    reason = getattr(error, "reason", "")
    return reason if isinstance(reason, str) and reason else type(error).__qualname__


class span:  # noqa: N801 - it reads as what it opens
    """A span around a block; what the block raises makes it failed. Not for generators, see `begin`."""

    __slots__ = ("_above", "_attributes", "_client", "_name", "_open")

    def __init__(self, name: str, attributes: Mapping[str, Value] = _NONE, *, client: bool = False) -> None:
        self._name = name
        self._attributes = attributes
        self._client = client
        self._above: Span | None = None
        self._open: Span | None = None

    def __enter__(self) -> Span:
        above = _current.get()
        if above is None or not above.recording:
            return above or NOWHERE
        self._above = above
        self._open = above.child(self._name, self._attributes, client=self._client, began_ns=None)
        _current.set(self._open)
        return self._open

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is None:
            return
        # Set, not reset: a token is good in its own context alone, and a block may be closed from another.
        _current.set(self._above)
        if error is not None:
            self._open.fail(failure(error))
        self._open.end()


def clock() -> int:
    """The Unix time in nanoseconds where something is recorded, else 0; see `waited` and `measured`."""
    return time.time_ns() if recording() is not None else 0


def waited(name: str, began_ns: int) -> None:
    """Record a wait that began at `clock()` and ends now, if it was one."""
    if began_ns and time.time_ns() - began_ns >= _LEAST_WAIT_NS:
        measured(name, began_ns)


def measured(name: str, began_ns: int, attributes: Mapping[str, Value] = _NONE) -> None:
    """Record a piece of work that began at `clock()` and ends now."""
    above = _current.get()
    if began_ns and above is not None:
        above.child(name, attributes, client=False, began_ns=began_ns).end()


def exemplar() -> dict[str, str] | None:
    """What joins a measurement to the trace that it was made in: its ids, None where it is not recorded."""
    return exemplar_of(_current.get())


def exemplar_of(span: Span | None) -> dict[str, str] | None:
    """The same of a span that is at hand."""
    return {"trace_id": span.trace_id, "span_id": span.span_id} if span is not None and span.recording else None
