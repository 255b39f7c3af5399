"""A load generator, run as a process of its own so that its work is not counted as the server's.

    python -m router.bench.load TARGET RPC COLLECTION CONNECTIONS SECONDS

RPC is echo, standard or agentic (a unary Answer on that route), classify or search. Each connection has one call in
flight; the key that is sent is in POINTSMAN_API_KEY. Prints one JSON object: calls, seconds, and latencies in seconds
(p50, p99).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
import uvloop
from pointsman.v1 import corpus_pb2, corpus_pb2_grpc, gateway_pb2, gateway_pb2_grpc

from router.bench.callers import KEY_VARIABLE, NOBODY
from router.bench.echo import ECHO_METHOD
from router.bench.processes import load_process
from router.percentile import percentile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.bench.callers import Caller

CALL_SECONDS: Final = 30.0
QUESTIONS = (
    "Where is the spare bilge pump kept?",
    "Who signs off a sailing at night?",
    "What does a day ticket for a bicycle cost?",
    "When was the lower car deck last inspected?",
)


async def measure(target: str, rpc: str, collection: str, connections: int, seconds: float) -> dict[str, float]:
    """Call as fast as `connections` calls in flight allow, for `seconds`."""
    latencies: list[float] = []
    channels = [open_channel(target) for _ in range(connections)]
    try:
        callers = [_caller(channel, rpc, collection) for channel in channels]
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


def open_channel(target: str) -> grpc.aio.Channel:
    """A channel with a socket of its own: gRPC would otherwise send all channels of a process over one."""
    return grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])


def with_key() -> tuple[tuple[str, str], ...]:
    """The metadata of a call: the key, where there is one."""
    key = os.environ.get(KEY_VARIABLE, "")
    return (("authorization", f"Bearer {key}"),) if key else ()


def answer_request(number: int, collection: str, route: str) -> gateway_pb2.AnswerRequest:
    """The question of that number, in turns."""
    return gateway_pb2.AnswerRequest(
        question=QUESTIONS[number % len(QUESTIONS)],
        collection=collection,
        route=gateway_pb2.ROUTE_AGENTIC if route == "agentic" else gateway_pb2.ROUTE_STANDARD,
    )


def _caller(channel: grpc.aio.Channel, rpc: str, collection: str) -> Callable[[int], Awaitable[Any]]:
    metadata = with_key()
    gateway = gateway_pb2_grpc.GatewayServiceStub(channel)
    if rpc == "echo":
        echo = channel.unary_unary(
            ECHO_METHOD,
            request_serializer=gateway_pb2.AnswerRequest.SerializeToString,
            response_deserializer=gateway_pb2.AnswerRequest.FromString,
        )
        return lambda number: echo(answer_request(number, collection, rpc), timeout=CALL_SECONDS, metadata=metadata)
    if rpc == "classify":
        return lambda number: gateway.Classify(
            gateway_pb2.ClassifyRequest(question=QUESTIONS[number % len(QUESTIONS)]),
            timeout=CALL_SECONDS,
            metadata=metadata,
        )
    if rpc == "search":
        corpus = corpus_pb2_grpc.CorpusServiceStub(channel)
        return lambda number: corpus.SearchPassages(
            corpus_pb2.SearchPassagesRequest(collection=collection, query=QUESTIONS[number % len(QUESTIONS)]),
            timeout=CALL_SECONDS,
            metadata=metadata,
        )
    return lambda number: gateway.Answer(
        answer_request(number, collection, rpc), timeout=CALL_SECONDS, metadata=metadata
    )


async def run_load(
    target: str, rpc: str, connections: int, seconds: float, *, collection: str = "", caller: Caller = NOBODY
) -> dict[str, Any]:
    """Call an RPC of a server from a process of its own and return what that measured."""
    arguments = (target, rpc, collection, str(connections))
    return await load_process("router.bench.load", *arguments, seconds=seconds, environment=caller.environment)


if __name__ == "__main__":
    target_, rpc_, collection_, connections_, seconds_ = sys.argv[1:6]
    report = uvloop.run(measure(target_, rpc_, collection_, int(connections_), float(seconds_)))
    sys.stdout.write(json.dumps(report) + "\n")
