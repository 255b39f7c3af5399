"""What the HTTP façades cost beside gRPC: one gateway, served both ways, called in turns.

    python -m router.bench.http PORT PATH SECONDS

is the load: one kept connection, one call in flight, as a process of its own. Prints one JSON object: calls, p50, p99.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import uvloop

from router.bench.load import QUESTIONS
from router.percentile import percentile
from standard.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.bench.figures import Figure
    from router.routing_models import LoadedModels
    from router.settings import Settings

    Report = Callable[[str], None]

_ROUNDS: Final = 3
_CALL_SECONDS: Final = 30.0
_PATHS: Final = {"chat": "/v1/chat/completions", "query": "/query"}


async def http_figures(
    settings: Settings,
    models: LoadedModels | None,
    dimensions: int,
    seconds: float,
    *,
    report: Report = lambda _: None,
) -> dict[str, Figure]:
    """Measure unary calls over HTTP and over gRPC in turns, on the hollow gateway; `seconds` is the length of each."""
    from router.bench.figures import Figure, load_process, run_load
    from router.bench.hollow import open_hollow_gateway, open_hollow_grpc
    from router.http.app import HttpApp, own_paths
    from router.http.asking import HttpParts
    from router.http.server import open_http
    from router.identity import Identity

    report("HTTP and gRPC in turns")

    async def ready() -> tuple[bool, dict[str, bool]]:
        return True, {}

    p50: dict[str, list[float]] = {"grpc": [], "chat": [], "query": []}
    async with open_hollow_gateway(settings, models, dimensions) as (gateway, parts):
        http_parts = HttpParts(gateway, parts.retriever, parts.embed, settings, lambda _: Identity(), ready)
        app = HttpApp(http_parts, own_paths())
        async with (
            open_hollow_grpc(gateway, parts) as grpc_port,
            open_http(settings.http, app, grace_seconds=1.0, port=0) as http_port,
        ):
            for _ in range(_ROUNDS):
                load = await run_load(f"127.0.0.1:{grpc_port}", "answer", 1, seconds / _ROUNDS)
                p50["grpc"].append(load["p50"])
                for name, path in _PATHS.items():
                    load = await load_process("router.bench.http", str(http_port), path, seconds=seconds / _ROUNDS)
                    p50[name].append(load["p50"])
    best = {name: min(times) * 1e3 for name, times in p50.items()}
    what = "with nothing behind the gateway, 1 connection, best p50 of three rounds in turns with gRPC"
    return {
        "hollow_grpc_p50_ms": Figure(best["grpc"], "ms", f"unary Answer, {what}"),
        "hollow_http_chat_p50_ms": Figure(best["chat"], "ms", f"unary /v1/chat/completions, {what}"),
        "hollow_http_query_p50_ms": Figure(best["query"], "ms", f"unary /query, {what}"),
        "http_added_p50_ms": Figure(
            max(best["chat"], best["query"]) - best["grpc"],
            "ms",
            "the slower of the two façades less gRPC, each with its own client (raw HTTP/1.1, grpc.aio)",
        ),
    }


async def measure(port: int, path: str, seconds: float) -> dict[str, float]:
    """Call as fast as one connection allows, for `seconds`; latencies in seconds."""
    requests = [_request(path, question) for question in QUESTIONS]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    latencies: list[float] = []
    try:
        await _call(reader, writer, requests[0])  # connect and warm up
        until = time.perf_counter() + seconds
        while (at := time.perf_counter()) < until:
            await _call(reader, writer, requests[len(latencies) % len(requests)])
            latencies.append(time.perf_counter() - at)
    finally:
        writer.close()
    latencies.sort()
    return {"calls": len(latencies), "p50": percentile(latencies, 0.5), "p99": percentile(latencies, 0.99)}


def _request(path: str, question: str) -> bytes:
    body: dict[str, Any] = {"question": question, "route": "standard"}
    if path == _PATHS["chat"]:
        body = {"model": "pointsman-standard", "messages": [{"role": "user", "content": question}]}
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def _call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    async with asyncio.timeout(_CALL_SECONDS):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise FailedPrecondition(f"the server answered {head[:40]!r}")
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":", 1)[1]))


if __name__ == "__main__":
    port_, path_, seconds_ = sys.argv[1:4]
    sys.stdout.write(json.dumps(uvloop.run(measure(int(port_), path_, float(seconds_)))) + "\n")
