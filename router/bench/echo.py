"""The yardstick: the least that grpc.aio does for a unary call."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import grpc
from pointsman.v1 import gateway_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ECHO_METHOD: Final = "/bench.Echo/Echo"


async def _echo(request: gateway_pb2.AnswerRequest, _context: object) -> gateway_pb2.AnswerRequest:
    return request


@asynccontextmanager
async def open_echo() -> AsyncIterator[int]:
    """Yield the port of a server with one method that returns its request."""
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        _echo,
        request_deserializer=gateway_pb2.AnswerRequest.FromString,
        response_serializer=gateway_pb2.AnswerRequest.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)
