"""What a call costs beside embedding, database and model: over a bare grpc.aio echo, and over HTTP."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from router.bench.conditions import guarded
from router.bench.echo import open_echo
from router.bench.figure import Figure, Figures, Report
from router.bench.hollow import open_hollow, open_hollow_grpc, open_hollow_http
from router.bench.http_load import run_http_load
from router.bench.load import run_load
from router.percentile import percentile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.bench.standin import Standin
    from router.routing.models import LoadedModels
    from router.settings import Settings

    Load = Callable[[float], Awaitable[dict[str, Any]]]

_ON: Final = "keys, limits, metrics and traces on"


@dataclass(frozen=True, slots=True)
class Turn:
    """The best of some rounds: CPU seconds of this process a call, and the median latency in seconds.

    `rounds` are the CPU seconds a call of each round, in their order.
    """

    cpu: float
    p50: float
    rounds: tuple[float, ...]

    def over(self, other: Turn) -> float:
        """CPU over another's, round by round: the median. A round lies within one mood of the machine."""
        found = sorted(ours / theirs for ours, theirs in zip(self.rounds, other.rounds, strict=True))
        return percentile(found, 0.5)


async def in_turns(loads: dict[str, Load], rounds: int, seconds: float) -> dict[str, Turn]:
    """Run loads one after another, `rounds` times, so that all of them see the same machine."""
    cpu: dict[str, list[float]] = {name: [] for name in loads}
    p50: dict[str, list[float]] = {name: [] for name in loads}
    for _ in range(rounds):
        for name, load in loads.items():
            before = time.process_time()
            found = await load(seconds / rounds)
            cpu[name].append((time.process_time() - before) / max(found["calls"], 1))
            p50[name].append(found["p50"])
    return {name: Turn(min(cpu[name]), min(p50[name]), tuple(cpu[name])) for name in loads}


async def added_figures(
    settings: Settings,
    standin: Standin,
    models: LoadedModels | None,
    dimensions: int,
    seconds: float,
    rounds: int,
    report: Report,
) -> Figures:
    """Echo, hollow gateway and hollow gateway with every call traced, in turns; then the same over HTTP."""
    report("CPU a call: bare echo and gateway in turns")
    async with AsyncExitStack() as stack:
        ports = {"echo": await stack.enter_async_context(open_echo())}
        callers = {}
        for name, share in (("answer", None), ("traced", 1.0)):
            hollow = await stack.enter_async_context(
                open_hollow(guarded(settings, standin, traced=share), models, dimensions)
            )
            ports[name] = await stack.enter_async_context(open_hollow_grpc(hollow))
            callers[name] = hollow.caller
            if name == "answer":
                http = await stack.enter_async_context(open_hollow_http(hollow))
        caller = callers["answer"]

        def over_grpc(name: str, rpc: str) -> Load:
            return lambda length: run_load(f"127.0.0.1:{ports[name]}", rpc, 1, length, caller=caller)

        def over_http(kind: str) -> Load:
            return lambda length: run_http_load(http, kind, length, caller=caller)

        first = {
            "echo": over_grpc("echo", "echo"),
            "answer": over_grpc("answer", "standard"),
            "traced": over_grpc("traced", "standard"),
        }
        found = await in_turns(first, rounds, seconds)
        report("HTTP and gRPC in turns")
        second = {"grpc": over_grpc("answer", "standard"), "chat": over_http("chat"), "query": over_http("query")}
        fronts = await in_turns(second, rounds, seconds)
    return _added(found) | _fronts(fronts)


def _added(found: dict[str, Turn]) -> Figures:
    bare, ours, traced = found["echo"], found["answer"], found["traced"]
    return {
        "echo_cpu_us": Figure(bare.cpu * 1e6, "us", "server CPU of a bare grpc.aio unary echo; best of the rounds"),
        "answer_cpu_us": Figure(
            ours.cpu * 1e6, "us", f"server CPU of a unary Answer, {_ON}; embedding, database and LLM left out"
        ),
        "added_cpu_ratio": Figure(
            ours.over(bare), "x", "CPU of that Answer over the echo's, the median of the rounds", 5.0
        ),
        "traced_cpu_us": Figure(traced.cpu * 1e6, "us", "the same with every call recorded and sent to a collector"),
        "traced_cpu_ratio": Figure(traced.over(bare), "x", "the same with every call traced"),
        "added_latency_p50_ms": Figure(
            (ours.p50 - bare.p50) * 1e3, "ms", f"unary Answer's p50 less the echo's, 1 connection, {_ON}", 1.0
        ),
    }


def _fronts(found: dict[str, Turn]) -> Figures:
    what = f"with nothing behind the gateway, {_ON}, 1 connection, best p50 of rounds in turns with gRPC"
    p50 = {name: turn.p50 * 1e3 for name, turn in found.items()}
    return {
        "hollow_grpc_p50_ms": Figure(p50["grpc"], "ms", f"unary Answer, {what}"),
        "hollow_http_chat_p50_ms": Figure(p50["chat"], "ms", f"unary /v1/chat/completions, {what}"),
        "hollow_http_query_p50_ms": Figure(p50["query"], "ms", f"unary /query, {what}"),
        "http_added_p50_ms": Figure(
            max(p50["chat"], p50["query"]) - p50["grpc"],
            "ms",
            "the slower of the two façades less gRPC, each with its own client (raw HTTP/1.1, grpc.aio)",
            1.0,
        ),
    }
