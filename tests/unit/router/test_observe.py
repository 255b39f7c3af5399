"""What is counted of a call whose client leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from router.grpc.observe import ObserveRpcs
from router.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Details:
    """The call's name."""

    method = "/pointsman.v1.GatewayService/StreamAnswer"


class Call:
    """A call with time left, of a client that names no trace."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def time_remaining(self) -> float:
        return 5.0


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_client_that_leaves_a_stream_is_counted_as_cancelled_and_ends_the_work(*, waiting: bool) -> None:
    ended = asyncio.Event()

    async def answers(_request: object, _context: object) -> AsyncIterator[str]:
        try:
            yield "first"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def found(_details: object) -> Any:  # noqa: ANN401
        return grpc.unary_stream_rpc_method_handler(cast(Any, answers))

    metrics = Metrics()
    handler = await ObserveRpcs(metrics).intercept_service(found, cast(Any, Details()))
    assert handler is not None
    stream = cast(Any, handler).unary_stream("request", Call())
    assert await anext(stream) == "first"
    if waiting:  # for the next piece
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    else:  # while the piece was being sent
        await stream.aclose()
    assert ended.is_set()
    labels = {
        "grpc_type": "server_stream",
        "grpc_service": "pointsman.v1.GatewayService",
        "grpc_method": "StreamAnswer",
        "grpc_code": "Canceled",
    }
    assert metrics.registry.get_sample_value("grpc_server_handled_total", labels) == 1
