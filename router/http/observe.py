"""Counts every HTTP request by façade, path template and status, and keeps the record of the call.

Requests that uvicorn answers by itself, since their head is none or there are too many connections, are not seen here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from router.telemetry.calls import TRACE_ID, Calls
from standard import semconv
from standard.spans import exemplar_of

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram
    from starlette.requests import Request

    from router.http.app import Served
    from router.http.wire import Reply
    from router.telemetry.calls import CallInHand
    from router.telemetry.metrics import Metrics
    from standard.spans import Value

GONE: Final = "client_gone"
"""The status of a request whose client went away before it was answered."""
BROKEN: Final = "broken"
"""The status of a response that broke off after it had begun."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER: Final = "other"


class ObserveHttp:
    """Observes the requests of one server. Without metrics and calls nothing is counted."""

    def __init__(self, metrics: Metrics | None = None, calls: Calls | None = None) -> None:
        self._metrics = metrics
        self._calls = calls or Calls()
        self._seconds: dict[tuple[str, str, str], Histogram] = {}
        self._requests: dict[tuple[str, str, str, str], Counter] = {}
        self._attributes: dict[tuple[str, str], dict[str, Value]] = {}

    def begin(self, request: Request, served: Served | None, reply: Reply) -> CallInHand | None:
        """Begin the record of a call, whose trace the client finds in a header; None for a probe of health."""
        if served is not None and served.probe:
            return None
        method = _method(request)
        route = "" if served is None else served.path
        key = (method, route)
        attributes = self._attributes.get(key)
        if attributes is None:  # at most a method and a path that are served each
            attributes = {semconv.HTTP_METHOD: "_OTHER" if method == _OTHER else method, semconv.URL_SCHEME: "http"}
            if route:
                attributes[semconv.HTTP_ROUTE] = route
            self._attributes[key] = attributes
        headers = request.headers
        parents = headers.getlist("traceparent")
        states = headers.getlist("tracestate") if parents else ()
        call = self._calls.begin(
            f"{method} {route or _OTHER}", attributes, parents, states, name=f"{method} {route}".strip()
        )
        if call.span is not None:
            reply.headers = ((TRACE_ID, call.span.trace_id),)
        return call

    def end(self, request: Request, served: Served | None, reply: Reply, call: CallInHand | None, ended: str) -> None:
        """Count a request and end its record; `ended` is "" for one that was answered, else GONE or BROKEN."""
        status = ended or str(reply.status or 0)
        started = call.started if call is not None else 0.0
        seconds = time.perf_counter() - started
        span = None if call is None else call.span
        if span is not None and span.recording:
            if reply.status:
                span.set(semconv.HTTP_STATUS, reply.status)
            span.set(semconv.URL_PATH, request.scope["path"][:256])
        if self._metrics is not None:
            self._count(request, served, status, seconds if call is not None else None, exemplar_of(span))
        if call is not None:
            fault = status if status == BROKEN or (not ended and reply.status >= 500) else ""
            self._calls.end(call, status, seconds, fault=fault, refused=bool(ended) or reply.status >= 400)

    def _count(
        self, request: Request, served: Served | None, status: str, seconds: float | None, traced: dict[str, str] | None
    ) -> None:
        metrics: Any = self._metrics
        labels = (
            _OTHER if served is None else served.facade,
            _OTHER if served is None else served.path,
            _method(request),
        )
        counter = self._requests.get((*labels, status))
        if counter is None:
            counter = self._requests[*labels, status] = metrics.http_requests.labels(*labels, status)
        counter.inc()
        if seconds is None:
            return
        histogram = self._seconds.get(labels)
        if histogram is None:
            histogram = self._seconds[labels] = metrics.http_seconds.labels(*labels)
        histogram.observe(seconds, traced)


def _method(request: Request) -> str:
    method = request.scope["method"]
    return method if method in _METHODS else _OTHER
