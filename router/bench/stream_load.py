"""A load generator for streams, as a process of its own: how long words take from the model's server to the client.

    python -m router.bench.stream_load TARGET KIND MODEL COLLECTION STREAMS SECONDS

KIND is grpc (StreamAnswer at HOST:PORT) or chat (a streamed chat completion of MODEL at a port). Each of STREAMS
connections reads one stream after another. Words say when they were sent (router.bench.standin), so that what lies
between is known to the microsecond. Prints one JSON object: events (messages or chunks), seconds, words, and times in
seconds: forwarded (a word's way), released (its way counted from the last word that was sent before it came, which is
what let it go where words are held back until their end is known), first_event and first_token (after the call).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvloop
from pointsman.v1 import gateway_pb2, gateway_pb2_grpc

from router.bench.callers import KEY_VARIABLE, NOBODY
from router.bench.http_load import CHAT, OURS, chat_body
from router.bench.load import CALL_SECONDS, QUESTIONS, answer_request, open_channel, with_key
from router.bench.processes import load_process
from router.bench.standin import STAMP
from router.bench.wire import Connection
from router.percentile import percentile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.bench.callers import Caller

_STAMP_LENGTH = 16


@dataclass(slots=True)
class Watched:
    """What is learned of streams."""

    events: int = 0
    forwarded: list[float] = field(default_factory=list)
    released: list[float] = field(default_factory=list)
    first_event: list[float] = field(default_factory=list)
    first_token: list[float] = field(default_factory=list)


class Reading:
    """One stream as it is read; a word counts when its last digit has come."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._began = time.monotonic()
        self._held = ""
        self._words: list[tuple[float, float]] = []
        self._seen = False
        self._spoken = False

    def event(self, text: str) -> None:
        """An event has come, with this text of the answer, which may be none."""
        now = time.monotonic()
        self._watched.events += 1
        if not self._seen:
            self._seen = True
            self._watched.first_event.append(now - self._began)
        if not text:
            return
        if not self._spoken:
            self._spoken = True
            self._watched.first_token.append(now - self._began)
        self._held += text
        for found in STAMP.finditer(self._held):
            self._words.append((int(found[1]) / 1e6, now))
        last = self._held.rfind("w")
        whole = last < 0 or len(self._held) - last >= _STAMP_LENGTH
        self._held = "" if whole else self._held[last:]

    def end(self) -> None:
        """The stream is over: count its words."""
        sent = [at for at, _ in self._words]
        for at, came in self._words:
            self._watched.forwarded.append(came - at)
            self._watched.released.append(came - sent[bisect_right(sent, came) - 1])


async def measure(
    target: str, kind: str, model: str, collection: str, streams: int, seconds: float
) -> dict[str, float | int]:
    """Read streams for `seconds`; those that are begun are read to their end."""
    watched, warming = Watched(), Watched()
    read = _read_grpc if kind == "grpc" else _read_chat
    until = [0.0]

    async def work(number: int) -> None:
        async def again(once: Callable[[int, Watched], Awaitable[None]]) -> None:
            await once(number, warming)
            if not until[0]:
                until[0] = time.perf_counter() + seconds
            turn = number
            while time.perf_counter() < until[0]:
                turn += 1
                await once(turn, watched)

        await read(target, model, collection, again)

    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(work(number))
    elapsed = time.perf_counter() - (until[0] - seconds)
    return {"events": watched.events, "seconds": elapsed, "words": len(watched.forwarded), **_times(watched)}


def _times(watched: Watched) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ("forwarded", "released", "first_event", "first_token"):
        ordered = sorted(getattr(watched, name))
        if not ordered:
            raise RuntimeError(f"no {name} was seen; the server's answer holds no word of the stand-in's")
        found |= {f"{name}_p50": percentile(ordered, 0.5), f"{name}_p99": percentile(ordered, 0.99)}
    return found


async def _read_grpc(
    target: str,
    _model: str,
    collection: str,
    again: Callable[[Callable[[int, Watched], Awaitable[None]]], Awaitable[None]],
) -> None:
    channel = open_channel(target)
    stub, metadata = gateway_pb2_grpc.GatewayServiceStub(channel), with_key()

    async def once(number: int, watched: Watched) -> None:
        request = gateway_pb2.StreamAnswerRequest(request=answer_request(number, collection, "standard"))
        reading = Reading(watched)
        async for response in stub.StreamAnswer(request, timeout=CALL_SECONDS, metadata=metadata):
            event = response.event
            reading.event(event.token.text if event.HasField("token") else "")
        reading.end()

    try:
        await again(once)
    finally:
        await channel.close()


async def _read_chat(
    target: str,
    model: str,
    collection: str,
    again: Callable[[Callable[[int, Watched], Awaitable[None]]], Awaitable[None]],
) -> None:
    async with Connection(int(target), os.environ.get(KEY_VARIABLE, "")) as connection:

        async def once(number: int, watched: Watched) -> None:
            question = QUESTIONS[number % len(QUESTIONS)]
            request = connection.request(CHAT, chat_body(model, question, collection, stream=True))
            reading = Reading(watched)
            async for chunk in connection.events(request):
                choices = chunk.get("choices") or ()
                reading.event(choices[0].get("delta", {}).get("content") or "" if choices else "")
            reading.end()

        await again(once)


async def run_stream_load(
    target: str,
    kind: str,
    streams: int,
    seconds: float,
    *,
    model: str = OURS,
    collection: str = "",
    caller: Caller = NOBODY,
) -> dict[str, Any]:
    """Read streams of a server from a process of its own and return what that measured."""
    arguments = (target, kind, model, collection, str(streams))
    return await load_process("router.bench.stream_load", *arguments, seconds=seconds, environment=caller.environment)


if __name__ == "__main__":
    target_, kind_, model_, collection_, streams_, seconds_ = sys.argv[1:7]
    sys.stdout.write(
        json.dumps(uvloop.run(measure(target_, kind_, model_, collection_, int(streams_), float(seconds_)))) + "\n"
    )
