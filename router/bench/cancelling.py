"""Cancelled calls: how long after the client left the model's connection is closed, and the SQL statement gone."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from pointsman.v1 import gateway_pb2, gateway_pb2_grpc

from router.bench.figure import Figures, Goals, Report, percentiles
from router.bench.load import CALL_SECONDS, answer_request, open_channel
from standard.database.pool import connection, transaction
from standard.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from router.bench.callers import Caller
    from router.bench.standin import Standin
    from standard.database.pool import Connection, Pool

    Stub = gateway_pb2_grpc.GatewayServiceAsyncStub

_WORDS: Final = 2000
_APART: Final = 0.005
_LOOK_SECONDS: Final = 0.0005
_GONE_SECONDS: Final = 5.0
_WAITING: Final = (
    b"select count(*) from pg_stat_activity"
    b" where datname = current_database() and state = 'active' and wait_event_type = 'Lock'"
)
_GOALS: Final = Goals(100.0, 100.0)


async def cancel_figures(
    target: str, caller: Caller, collection: str, standin: Standin, pool: Pool, count: int, report: Report
) -> Figures:
    """Cancel `count` streams while the model writes, and `count` while a statement of the search waits for a lock.

    Client and gateway share this process, which is otherwise idle.
    """
    report("cancelled calls")
    channel = open_channel(target)
    stub = gateway_pb2_grpc.GatewayServiceStub(channel)
    metadata = (("authorization", f"Bearer {caller.token}"),)
    try:
        await standin.pace(_WORDS, _APART)
        await standin.left()
        of_model = [await _model_left(stub, metadata, collection, standin) for _ in range(count)]
        of_sql = [await _statement_gone(stub, metadata, collection, pool) for _ in range(count)]
    finally:
        await channel.close()
    return percentiles(
        "cancel_llm",
        of_model,
        "from the client's cancellation to the model's server seeing that it is closed",
        _GOALS,
    ) | percentiles(
        "cancel_sql",
        of_sql,
        "from the client's cancellation to the waiting statement being gone",
        _GOALS,
    )


async def _model_left(stub: Stub, metadata: tuple[tuple[str, str], ...], collection: str, standin: Standin) -> float:
    request = gateway_pb2.StreamAnswerRequest(request=answer_request(0, collection, "standard"))
    call = stub.StreamAnswer(request, timeout=CALL_SECONDS, metadata=metadata)
    async for response in call:
        if response.event.HasField("token"):
            break
    at = time.monotonic()
    call.cancel()
    async with asyncio.timeout(_GONE_SECONDS):
        while not (left := await standin.left()):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(_LOOK_SECONDS)
    return left[0] - at


async def _statement_gone(stub: Stub, metadata: tuple[tuple[str, str], ...], collection: str, pool: Pool) -> float:
    async with transaction(pool) as holder, connection(pool) as watcher:
        await holder.execute(b"lock table chunk in access exclusive mode")
        request = gateway_pb2.StreamAnswerRequest(request=answer_request(0, collection, "standard"))
        call = stub.StreamAnswer(request, timeout=CALL_SECONDS, metadata=metadata)
        reading = asyncio.ensure_future(call.read())
        try:
            await _until(watcher, waiting=True)
            at = time.monotonic()
            call.cancel()
            await _until(watcher, waiting=False)
            return time.monotonic() - at
        finally:
            call.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _until(watcher: Connection, *, waiting: bool) -> None:
    """Look until statements wait for a lock, or until none does."""
    async with asyncio.timeout(_GONE_SECONDS):
        while True:
            cursor = await watcher.execute(_WAITING)
            row = await cursor.fetchone()
            if row is None:
                raise FailedPrecondition("the database tells nothing of its statements")
            if bool(row[0]) is waiting:
                return
            await asyncio.sleep(_LOOK_SECONDS)
