"""A call as it is worked on: its place in a trace, its ids for the logs, and the line that tells how it ended.

The record is one object a call, which every task of the call sees; who learns something of the call writes it there.
"""

from __future__ import annotations

import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import structlog

from router.telemetry.context import read_parent
from standard import spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from router.telemetry.tracing import Tracing
    from standard.domain.answer import Answer
    from standard.spans import Span, Value

Access = Literal["all", "errors", "nothing"]
_log = structlog.get_logger("pointsman.access")
TRACE_ID: Final = "x-trace-id"
"""The header, or trailing metadata, in which a caller finds the trace of its call."""


@dataclass(slots=True, eq=False)
class CallInHand:
    """One call. `method` is an RPC's full name, or an HTTP method and the path's template.

    `route` and `outcome` are those of its answer, "" where it has none.
    """

    method: str
    span: Span | None
    started: float = field(default_factory=time.perf_counter)
    request_id: str = ""
    route: str = ""
    outcome: str = ""
    made: bool = False

    def id_for_logs(self) -> str:
        """The request id; one is made where the first line of a call comes before its request has one."""
        if not self.request_id:
            self.request_id, self.made = uuid.uuid4().hex, True
        return self.request_id

    @property
    def trace_id(self) -> str:
        """32 hex digits, "" outside of a trace."""
        return "" if self.span is None else self.span.trace_id


_call: ContextVar[CallInHand | None] = ContextVar("call", default=None)


def call_in_hand() -> CallInHand | None:
    """The call that the work here is for."""
    return _call.get()


def named(request_id: str) -> None:
    """Tell the call in hand its request id."""
    call = _call.get()
    if call is not None:
        call.request_id = request_id


def new_request_id() -> str:
    """An id for a request that brought none: that of the lines that were logged already, where there are any."""
    call = _call.get()
    return call.request_id if call is not None and call.made else uuid.uuid4().hex


def answered(answer: Answer) -> None:
    """Tell the call in hand what its answer came to."""
    call = _call.get()
    if call is None:
        return
    call.route = answer.route.value
    call.outcome = "" if answer.outcome is None else answer.outcome.value
    span = call.span
    if span is not None and span.recording:
        span.set("pointsman.route", call.route)
        span.set("pointsman.outcome", call.outcome)
        span.set("pointsman.stop_reason", "" if answer.stop_reason is None else answer.stop_reason.value)
        span.set("pointsman.request_id", answer.request_id)


class Calls:
    """Begins and ends the records of calls; one for gRPC and HTTP together. Without `tracing` nothing is recorded."""

    def __init__(self, tracing: Tracing | None = None, access: Access = "nothing") -> None:
        self._tracing = tracing
        self._access: Access = access

    def begin(
        self,
        method: str,
        attributes: Mapping[str, Value],
        parents: list[str],
        states: Iterable[str] = (),
        *,
        name: str = "",
    ) -> CallInHand:
        """Begin a call with its caller's trace context, and make it the one in hand; `name` is its span's."""
        parent = read_parent(parents, states) if parents else None
        span: Span | None = None
        if self._tracing is not None:
            span = self._tracing.arrived(name or method, attributes, parent)
        elif parent is not None:
            span = parent.place()
        call = CallInHand(method, span)
        _call.set(call)
        spans.enter(span)
        return call

    def end(self, call: CallInHand, status: str, seconds: float, *, fault: str = "", refused: bool = False) -> None:
        """End a call: its span, and its line. `fault` is what the server failed of, `refused` what the caller did."""
        if call.span is not None and call.span.recording:
            if fault:
                call.span.fail(fault)
            call.span.end()
        if self._access == "all" or (self._access == "errors" and (fault or refused)):
            spans.enter(call.span)
            _log.info(
                "call",
                method=call.method,
                status=status,
                route=call.route,
                outcome=call.outcome,
                seconds=round(seconds, 6),
            )
        spans.enter(None)
        _call.set(None)
