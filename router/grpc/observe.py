"""Counts every RPC by the names of grpc-ecosystem's Prometheus metrics, and keeps the record of the call.

There is no ready-made aio interceptor that is cheap: label children are looked up once a method and kept, and what
tracing needs to know of a method is put together once as well.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from router.grpc.errors import abort, code_name
from router.grpc.wrapping import WrapHandlers
from router.telemetry.calls import TRACE_ID, Calls
from standard import semconv
from standard.domain.errors import InvalidInput
from standard.spans import exemplar_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from prometheus_client import Counter, Histogram

    from router.telemetry.calls import CallInHand
    from router.telemetry.metrics import Metrics
    from standard.spans import Value

    Context = aio.ServicerContext[object, object]


@dataclass(slots=True)
class _Method:
    """The label children of one method, and what its spans are called; `watched` are all but probes and reflection."""

    started: Counter
    received: Counter
    sent: Counter
    seconds: Histogram
    labels: tuple[str, str, str]
    name: str
    attributes: dict[str, Value]
    watched: bool
    handled: dict[str, Counter] = field(default_factory=dict)


class Undecodable:
    """Stands for bytes that are no message of the method's; grpc alone would answer with a traceback in the log."""


def _lenient(deserializer: Any) -> Any:  # noqa: ANN401 - grpc's are untyped
    def decoded(data: bytes) -> object:
        try:
            return deserializer(data)
        except (DecodeError, UnicodeDecodeError):
            return Undecodable()

    return None if deserializer is None else decoded


_FAULTS: Final = frozenset({"Unknown", "DeadlineExceeded", "Unimplemented", "Internal", "Unavailable", "DataLoss"})
"""Codes that are the server's failure, as the conventions for gRPC have it."""


def _status_name(code: str) -> str:
    """`DEADLINE_EXCEEDED` for `DeadlineExceeded`."""
    return code if code == "OK" else re.sub(r"(?<!^)(?=[A-Z])", "_", code).upper().replace("CANCELED", "CANCELLED")


def _no_message() -> InvalidInput:
    return InvalidInput("request", "is no valid message of this method")


class ObserveRpcs(WrapHandlers):
    """A server interceptor that wraps each handler once and keeps it."""

    def __init__(self, metrics: Metrics, calls: Calls | None = None) -> None:
        super().__init__()
        self._metrics = metrics
        self._calls = calls or Calls()

    def wrap(self, name: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """Count what goes through the handler."""
        if handler.response_streaming and not inspect.isasyncgenfunction(handler.unary_stream or handler.stream_stream):
            return handler  # it writes by itself what it has to say, as long as the caller stays: Health.Watch alone
        _, service, rpc = name.split("/", 2)
        kind = (
            ("bidi_stream" if handler.response_streaming else "client_stream")
            if handler.request_streaming
            else ("server_stream" if handler.response_streaming else "unary")
        )
        metrics = self._metrics
        labels = (kind, service, rpc)
        method = _Method(
            metrics.grpc_started.labels(*labels),
            metrics.grpc_received.labels(*labels),
            metrics.grpc_sent.labels(*labels),
            metrics.grpc_seconds.labels(*labels),
            labels,
            name[1:],
            {semconv.RPC_SYSTEM: "grpc", semconv.RPC_METHOD: name[1:]},
            watched=not service.startswith("grpc."),
        )
        if kind == "unary":
            return grpc.unary_unary_rpc_method_handler(
                self._one_response(handler.unary_unary, method, streamed_in=False),
                _lenient(handler.request_deserializer),
                handler.response_serializer,
            )
        if kind == "server_stream":
            return grpc.unary_stream_rpc_method_handler(
                self._server_stream(handler.unary_stream, method),
                _lenient(handler.request_deserializer),
                handler.response_serializer,
            )
        if kind == "client_stream":
            return grpc.stream_unary_rpc_method_handler(
                self._one_response(handler.stream_unary, method, streamed_in=True),
                _lenient(handler.request_deserializer),
                handler.response_serializer,
            )
        return handler  # reflection alone

    def _begin(self, method: _Method, context: Any) -> CallInHand | None:  # noqa: ANN401
        """Begin the record of a call; the caller finds its trace in the trailing metadata, however it ends."""
        if not method.watched:
            return None
        parents: list[str] = []
        states: list[str] = []
        for name, value in context.invocation_metadata() or ():
            if name == "traceparent":
                parents.append(str(value))
            elif name == "tracestate":
                states.append(str(value))
        call = self._calls.begin(method.name, method.attributes, parents, states)
        if call.span is not None:
            context.set_trailing_metadata(((TRACE_ID, call.span.trace_id),))
        return call

    def _handled(
        self,
        method: _Method,
        context: Any,  # noqa: ANN401
        started: float,
        error: BaseException | None,
        call: CallInHand | None,
    ) -> None:
        seconds = time.perf_counter() - started
        span = None if call is None else call.span
        method.seconds.observe(seconds, exemplar_of(span))
        if isinstance(error, asyncio.CancelledError | GeneratorExit):  # the caller left, or its deadline passed
            left = context.time_remaining()
            code = "DeadlineExceeded" if left is not None and left <= 0.0 else "Canceled"
        elif error is None or isinstance(error, aio.AbortError):
            code = code_name(context.code())
        else:
            code = "Unknown"
        handled = method.handled.get(code)
        if handled is None:
            handled = method.handled[code] = self._metrics.grpc_handled.labels(*method.labels, code)
        handled.inc()
        if call is not None:
            if span is not None and span.recording:
                span.set(semconv.RPC_STATUS, _status_name(code))
            fault = code if code in _FAULTS else ""
            self._calls.end(call, code, seconds, fault=fault and _status_name(code), refused=code != "OK")

    def _one_response(self, behaviour: Any, method: _Method, *, streamed_in: bool) -> Any:  # noqa: ANN401 - untyped
        """Observe a method with one response; the requests of a stream are counted as they come."""

        async def counted(requests: AsyncIterator[object]) -> AsyncIterator[object]:
            async for request in requests:
                method.received.inc()
                if isinstance(request, Undecodable):
                    raise _no_message()
                yield request

        async def observed(request: Any, context: Context) -> object:  # noqa: ANN401 - a message, or a stream of them
            started = time.perf_counter()
            call = self._begin(method, context)
            method.started.inc()
            if streamed_in:
                request = counted(request)
            else:
                method.received.inc()
            error: BaseException | None = None
            try:
                if isinstance(request, Undecodable):
                    await abort(context, _no_message())
                response: object = await behaviour(request, context)
            except BaseException as caught:
                error = caught
                raise
            else:
                method.sent.inc()
                return response
            finally:
                self._handled(method, context, started, error, call)

        return observed

    def _server_stream(self, behaviour: Any, method: _Method) -> Any:  # noqa: ANN401
        async def observed(request: object, context: Context) -> AsyncIterator[object]:
            started = time.perf_counter()
            call = self._begin(method, context)
            method.started.inc()
            method.received.inc()
            error: BaseException | None = None
            try:
                if isinstance(request, Undecodable):
                    await abort(context, _no_message())
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        method.sent.inc()
                        yield response
            except BaseException as caught:
                error = caught
                raise
            finally:
                self._handled(method, context, started, error, call)

        return observed
