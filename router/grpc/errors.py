"""Our errors on the wire: a status with google.rpc details, and never a traceback."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

import grpc
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from standard.domain.errors import DeadlineExceeded, InvalidInput, PointsmanError, Unavailable

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from grpc import aio

DOMAIN = "pointsman.v1"
_MESSAGE_CHARS = 1024
_log = structlog.get_logger("pointsman.grpc")


def to_status(error: BaseException) -> status_pb2.Status:
    """The google.rpc.Status of an error; anything that is not of our tree is INTERNAL and says nothing of itself."""
    if not isinstance(error, PointsmanError):
        return status_pb2.Status(code=code_pb2.INTERNAL, message="internal error; the server's log tells more")
    details: list[Message] = [
        error_details_pb2.ErrorInfo(
            reason=error.reason,
            domain=DOMAIN,
            metadata={"dependency": error.dependency} if isinstance(error, Unavailable) else {},
        )
    ]
    if isinstance(error, InvalidInput):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.problem)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after_seconds is not None:
        delay = duration_pb2.Duration()
        delay.FromMicroseconds(int(error.retry_after_seconds * 1e6))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return status_pb2.Status(
        code=code_pb2.Code.Value(error.grpc_code),
        message=error.message[:_MESSAGE_CHARS],
        details=[_packed(detail) for detail in details],
    )


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


async def abort(context: aio.ServicerContext[object, object], error: BaseException) -> NoReturn:
    """End a call with an error's status. Cancellation is passed on as it is."""
    if isinstance(error, asyncio.CancelledError):
        raise error
    if isinstance(error, TimeoutError):
        error = DeadlineExceeded("the time for this call is used up")
    if not isinstance(error, PointsmanError):
        _log.error("call failed", exc_info=error)
    status = rpc_status.to_status(to_status(error))
    # What was set before, such as the call's trace, stays beside the details.
    trailing = (*(context.trailing_metadata() or ()), *(status.trailing_metadata or ()))
    await context.abort(status.code, status.details, trailing)
    raise AssertionError("abort returns never")


def code_name(code: grpc.StatusCode | int | None) -> str:
    """A code as the label grpc_code has it: `OK`, `InvalidArgument`, …, the convention of go-grpc-middleware."""
    if code is None or code == 0:
        return "OK"
    name = code_pb2.Code.Name(code) if isinstance(code, int) else code.name
    return "OK" if name == "OK" else "".join(part.capitalize() for part in name.split("_"))
