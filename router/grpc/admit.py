"""The gate before every RPC: callers are known, and within their limits, before a handler runs.

Health alone is open, since load balancers and kubelets bring no key. Reflection needs a key like everything else.
"""

from __future__ import annotations

from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import grpc

from router.access.certified import names_over_grpc
from router.access.identity import Identity
from router.grpc.errors import abort
from router.grpc.wrapping import WrapHandlers
from standard.domain.errors import PointsmanError, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from router.access.auth import Gate
    from router.grpc.calls import Context

_OPEN: Final = "/grpc.health.v1.Health/"
_caller: ContextVar[Identity] = ContextVar("caller")
"""Who the RPC of the current task is by."""


def caller(_context: Context) -> Identity:
    """Who a call is by, as the gate found. Raises Unauthenticated where no gate was passed."""
    try:
        return _caller.get()
    except LookupError:
        raise Unauthenticated("this call passed no gate") from None


def everyone(_context: Context) -> Identity:
    """For a server without a gate: everybody is tenant `default`, an operator."""
    return Identity()


class AdmitRpcs(WrapHandlers):
    """Puts the gate around each handler."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def wrap(self, name: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """Admit the caller before the handler runs; health is open."""
        if name.startswith(_OPEN):
            return handler
        codec = (handler.request_deserializer, handler.response_serializer)
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._streamed(handler.stream_stream), *codec)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(self._whole(handler.stream_unary), *codec)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streamed(handler.unary_stream), *codec)
        return grpc.unary_unary_rpc_method_handler(self._whole(handler.unary_unary), *codec)

    def _admitted(self, context: Context) -> AbstractAsyncContextManager[Identity]:
        keys: dict[str, list[str]] = {"authorization": [], "x-api-key": []}
        for name, value in context.invocation_metadata() or ():
            if name in keys:
                keys[name].append(value if isinstance(value, str) else value.decode("latin-1"))
        names = names_over_grpc(context.auth_context()) if self._gate.reads_certificates else ()
        return self._gate.admitted(keys["authorization"], keys["x-api-key"], names)

    def _whole(self, behaviour: Any) -> Any:  # noqa: ANN401 - untyped
        async def admitted(request: Any, context: Context) -> object:  # noqa: ANN401
            try:
                async with self._admitted(context) as identity:
                    _caller.set(identity)
                    response: object = await behaviour(request, context)
                    return response
            except PointsmanError as error:  # of the gate: handlers map their own
                await abort(context, error)

        return admitted

    def _streamed(self, behaviour: Any) -> Any:  # noqa: ANN401
        async def admitted(request: Any, context: Context) -> AsyncIterator[object]:  # noqa: ANN401
            try:
                async with self._admitted(context) as identity:
                    _caller.set(identity)
                    async with aclosing(behaviour(request, context)) as responses:
                        async for response in responses:
                            yield response
            except PointsmanError as error:
                await abort(context, error)

        return admitted
