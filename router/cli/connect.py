"""How client commands reach a gateway: the one they name, the one of this data directory, or one within the process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from pointsman.client import Pointsman

from router.access.tls import client_credentials
from router.process.serverlock import running_server
from router.settings import load_settings
from standard.domain.errors import PointsmanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from router.settings import Settings

Answer = TypeVar("Answer")


class RemoteError(PointsmanError):
    """What a server answered; `code` is the name of its gRPC status code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@asynccontextmanager
async def connected(
    settings: Settings, server: str | None, key: str = "", *, in_process: bool = False
) -> AsyncIterator[Pointsman]:
    """Yield a client that brings `key`. Errors of calls inside the block come out as RemoteError.

    With `in_process` a server that runs on the data directory is passed by: it has settings of its own.
    """
    target = server
    if target is None and not in_process:
        running = running_server(settings.data_dir)
        target = running.target if running else None
    async with remote_errors():
        if target is not None:
            async with Pointsman(target, token=key, credentials=client_credentials(settings.tls)) as client:
                yield client
        else:
            from router.process.serving import open_local_server

            async with (
                open_local_server(settings) as (port, local),
                Pointsman(f"127.0.0.1:{port}", token=key or local) as client,
            ):
                yield client


def called(call: Callable[[Pointsman], Awaitable[Answer]], server: str | None, key: str) -> Answer:
    """Make one call, as the settings say, and return its answer. Raises RemoteError, and what `connected` raises."""

    async def run() -> Answer:
        async with connected(load_settings(), server, key) as client:
            return await call(client)

    return asyncio.run(run())


@asynccontextmanager
async def remote_errors() -> AsyncIterator[None]:
    """Errors of calls inside the block come out as RemoteError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise remote_error(error) from None


def remote_error(error: grpc.aio.AioRpcError) -> RemoteError:
    """A failed call as an error of ours: its code, message and field violations."""
    message = error.details() or error.code().name
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        violations = error_details_pb2.BadRequest()
        if detail.Is(violations.DESCRIPTOR) and detail.Unpack(violations):
            message = "; ".join(f"{item.field}: {item.description}" for item in violations.field_violations)
    return RemoteError(error.code().name, f"{message} ({error.code().name})")
