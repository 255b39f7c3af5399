"""A load generator for HTTP: one kept connection, one call in flight, as a process of its own.

    python -m router.bench.http_load PORT KIND MODEL COLLECTION SECONDS

KIND is chat (a chat completion of MODEL, which any server of that API takes) or query (our own). The key that is sent
is in POINTSMAN_API_KEY. Prints one JSON object: calls, and latencies in seconds (p50, p99).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from router.bench.callers import KEY_VARIABLE, NOBODY
from router.bench.load import QUESTIONS
from router.bench.processes import load_process
from router.bench.wire import Connection
from router.percentile import percentile

if TYPE_CHECKING:
    from router.bench.callers import Caller

CHAT: Final = "/v1/chat/completions"
OURS: Final = "pointsman-standard"
"""Our model that takes the standard route."""


def chat_body(model: str, question: str, collection: str, *, stream: bool = False) -> dict[str, Any]:
    """A chat request; `collection` goes to our own server alone, others would not know it."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": question}]}
    if collection:
        body["pointsman"] = {"collection": collection}
    if stream:
        body["stream"] = True
    return body


async def measure(port: int, kind: str, model: str, collection: str, seconds: float) -> dict[str, float]:
    """Call as fast as one connection allows, for `seconds`; latencies in seconds."""
    latencies: list[float] = []
    async with Connection(port, os.environ.get(KEY_VARIABLE, "")) as connection:
        requests = [
            connection.request(CHAT, chat_body(model, question, collection))
            if kind == "chat"
            else connection.request("/query", {"question": question, "route": "standard", "collection": collection})
            for question in QUESTIONS
        ]
        await connection.whole(requests[0])  # connect and warm up
        until = time.perf_counter() + seconds
        while (at := time.perf_counter()) < until:
            await connection.whole(requests[len(latencies) % len(requests)])
            latencies.append(time.perf_counter() - at)
    latencies.sort()
    return {"calls": len(latencies), "p50": percentile(latencies, 0.5), "p99": percentile(latencies, 0.99)}


async def run_http_load(
    port: int, kind: str, seconds: float, *, model: str = OURS, collection: str = "", caller: Caller = NOBODY
) -> dict[str, Any]:
    """Call a server from a process of its own and return what that measured."""
    arguments = (str(port), kind, model, collection)
    return await load_process("router.bench.http_load", *arguments, seconds=seconds, environment=caller.environment)


if __name__ == "__main__":
    import uvloop

    port_, kind_, model_, collection_, seconds_ = sys.argv[1:6]
    sys.stdout.write(json.dumps(uvloop.run(measure(int(port_), kind_, model_, collection_, float(seconds_)))) + "\n")
