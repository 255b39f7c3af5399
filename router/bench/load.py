"""A load generator, run as a process of its own so that its work is not counted as the server's.

    python -m router.bench.load TARGET RPC CONNECTIONS SECONDS

RPC is echo, answer, stream or classify. Each connection has one call in flight. Prints one JSON object: calls, seconds,
and latencies in seconds (p50, p99).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import grpc
import uvloop
from pointsman.v1 import gateway_pb2, gateway_pb2_grpc

from router.bench.echo import ECHO_METHOD
from router.percentile import percentile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

QUESTIONS = (
    "Where is the spare bilge pump kept?",
    "Who signs off a sailing at night?",
    "What does a day ticket for a bicycle cost?",
    "When was the lower car deck last inspected?",
)


async def measure(target: str, rpc: str, connections: int, seconds: float) -> dict[str, float]:
    """Call as fast as `connections` calls in flight allow, for `seconds`."""
    latencies: list[float] = []
    # Each connection has a pool of its own: gRPC would otherwise send all channels of a process over one socket.
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(target, options=options) for _ in range(connections)]
    try:
        callers = [_caller(channel, rpc) for channel in channels]
        await asyncio.gather(*(caller(0) for caller in callers))  # connect and warm up
        began = time.perf_counter()
        until = began + seconds

        async def work(caller: Callable[[int], Awaitable[Any]]) -> None:
            number = 0
            while (at := time.perf_counter()) < until:
                await caller(number)
                latencies.append(time.perf_counter() - at)
                number += 1

        async with asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(work(caller))
        elapsed = time.perf_counter() - began
    finally:
        await asyncio.gather(*(channel.close() for channel in channels))
    latencies.sort()
    return {
        "calls": len(latencies),
        "seconds": elapsed,
        "p50": percentile(latencies, 0.5),
        "p99": percentile(latencies, 0.99),
    }


def _caller(channel: grpc.aio.Channel, rpc: str) -> Callable[[int], Awaitable[Any]]:
    stub = gateway_pb2_grpc.GatewayServiceStub(channel)
    if rpc == "echo":
        echo = channel.unary_unary(
            ECHO_METHOD,
            request_serializer=gateway_pb2.AnswerRequest.SerializeToString,
            response_deserializer=gateway_pb2.AnswerRequest.FromString,
        )
        return lambda number: echo(_request(number), timeout=30.0)
    if rpc == "answer":
        return lambda number: stub.Answer(_request(number), timeout=30.0)
    if rpc == "classify":
        return lambda number: stub.Classify(
            gateway_pb2.ClassifyRequest(question=QUESTIONS[number % len(QUESTIONS)]), timeout=30.0
        )

    async def stream(number: int) -> None:
        async for _ in stub.StreamAnswer(gateway_pb2.StreamAnswerRequest(request=_request(number)), timeout=30.0):
            pass

    return stream


def _request(number: int) -> gateway_pb2.AnswerRequest:
    return gateway_pb2.AnswerRequest(
        question=QUESTIONS[number % len(QUESTIONS)], collection="bench-7000", route=gateway_pb2.ROUTE_STANDARD
    )


if __name__ == "__main__":
    target_, rpc_, connections_, seconds_ = sys.argv[1:5]
    report = uvloop.run(measure(target_, rpc_, int(connections_), float(seconds_)))
    sys.stdout.write(json.dumps(report) + "\n")
