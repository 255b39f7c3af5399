"""A server interceptor that wraps each method's handler once and keeps it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class WrapHandlers(aio.ServerInterceptor):
    """`wrap` says what stands around a handler."""

    def __init__(self) -> None:
        self._wrapped: dict[str, tuple[grpc.RpcMethodHandler[Any, Any], grpc.RpcMethodHandler[Any, Any]]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the wrapped handler of the call's method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        name = handler_call_details.method
        kept = self._wrapped.get(name)
        if kept is not None and kept[0] is handler:
            return kept[1]
        wrapped = self.wrap(name, handler)
        self._wrapped[name] = (handler, wrapped)
        return wrapped

    @abstractmethod
    def wrap(self, name: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """Return what serves the method `name` (/package.Service/Method) instead of its handler."""
