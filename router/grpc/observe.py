"""Counts every RPC by the names of grpc-ecosystem's Prometheus metrics.

There is no ready-made aio interceptor that is cheap: label children are looked up once a method and kept.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from router.grpc.errors import abort, code_name
from router.grpc.wrapping import WrapHandlers
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from prometheus_client import Counter, Histogram

    from router.telemetry.metrics import Metrics

    Context = aio.ServicerContext[object, object]


@dataclass(slots=True)
class _Method:
    """The label children of one method."""

    started: Counter
    received: Counter
    sent: Counter
    seconds: Histogram
    labels: tuple[str, str, str]


class Undecodable:
    """Stands for bytes that are no message of the method's; grpc alone would answer with a traceback in the log."""


def _lenient(deserializer: Any) -> Any:  # noqa: ANN401 - grpc's are untyped
    def decoded(data: bytes) -> object:
        try:
            return deserializer(data)
        except (DecodeError, UnicodeDecodeError):
            return Undecodable()

    return None if deserializer is None else decoded


def _no_message() -> InvalidInput:
    return InvalidInput("request", "is no valid message of this method")


class ObserveRpcs(WrapHandlers):
    """A server interceptor that wraps each handler once and keeps it."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def wrap(self, name: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """Count what goes through the handler."""
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

    def _handled(self, method: _Method, context: Any, started: float, error: BaseException | None) -> None:  # noqa: ANN401
        method.seconds.observe(time.perf_counter() - started)
        if isinstance(error, asyncio.CancelledError | GeneratorExit):  # the caller left, or its deadline passed
            left = context.time_remaining()
            code = "DeadlineExceeded" if left is not None and left <= 0.0 else "Canceled"
        elif error is None or isinstance(error, aio.AbortError):
            code = code_name(context.code())
        else:
            code = "Unknown"
        self._metrics.grpc_handled.labels(*method.labels, code).inc()

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
                self._handled(method, context, started, error)

        return observed

    def _server_stream(self, behaviour: Any, method: _Method) -> Any:  # noqa: ANN401
        async def observed(request: object, context: Context) -> AsyncIterator[object]:
            started = time.perf_counter()
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
                self._handled(method, context, started, error)

        return observed
