"""`pointsman bench`: every figure of one run, measured side by side on one machine."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router.application import open_application
from router.auth import Gate
from router.bench.corpora import fill
from router.bench.echo import open_echo
from router.bench.hollow import open_hollow
from router.bench.http import http_figures
from router.bench.load import QUESTIONS
from router.bench.statements import bare_search, run_bare
from router.percentile import percentile
from router.serving import open_grpc
from standard.domain.errors import FailedPrecondition
from standard.domain.passage import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.application import Application
    from router.settings import Settings

    Report = Callable[[str], None]

_ROUNDS = 3
_SEARCHES = 200


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value; `what` says how it was measured."""

    value: float
    unit: str
    what: str


async def run_bench(
    settings: Settings, sizes: Sequence[int], seconds: float, *, report: Report = lambda _: None
) -> dict[str, Figure]:
    """Measure everything. `sizes` are passages of the synthetic collections, `seconds` the length of each load."""
    figures: dict[str, Figure] = {}
    async with AsyncExitStack() as stack:
        application = await stack.enter_async_context(open_application(settings))
        figures |= await _added_cpu(application, seconds, report)
        models, dimensions = application.models.current(), application.embedder.dimensions
        figures |= await http_figures(settings, models, dimensions, seconds, report=report)
        figures |= await _embedding(application, report)
        for size in sizes:
            report(f"filling a collection of {size} passages (once a data directory)")
            name = await fill(application.pool, application.embedder, size)
            figures |= await _searches(application, name, size, report)
        everyone = Gate(None, application.limits)  # the load brings no key
        port = await stack.enter_async_context(open_grpc(application, port=0, gate=everyone))
        figures |= await _loads(f"127.0.0.1:{port}", seconds, report)
        figures |= await _start(report)
    return figures


async def _added_cpu(application: Application, seconds: float, report: Report) -> dict[str, Figure]:
    """CPU of the server's process a call, echo and hollow gateway in turns, so that both see the same machine."""
    report("CPU a call: bare echo and gateway in turns")
    cpu: dict[str, list[float]] = {"echo": [], "answer": []}
    latency: dict[str, list[float]] = {"echo": [], "answer": []}
    dimensions = application.embedder.dimensions
    async with (
        open_echo() as echo,
        open_hollow(application.settings, application.models.current(), dimensions) as hollow,
    ):
        ports = {"echo": echo, "answer": hollow}
        for _ in range(_ROUNDS):
            for rpc, port in ports.items():
                before = time.process_time()
                load = await run_load(f"127.0.0.1:{port}", rpc, 1, seconds / _ROUNDS)
                cpu[rpc].append((time.process_time() - before) / load["calls"])
                latency[rpc].append(load["p50"])
    bare, ours = min(cpu["echo"]), min(cpu["answer"])
    return {
        "echo_cpu_us": Figure(bare * 1e6, "us", "server CPU of a bare grpc.aio unary echo; best of three rounds"),
        "answer_cpu_us": Figure(ours * 1e6, "us", "server CPU of a unary Answer, embedding, database and LLM left out"),
        "added_cpu_ratio": Figure(ours / bare, "x", "answer_cpu_us over echo_cpu_us, measured in turns"),
        "added_latency_p50_ms": Figure(
            (min(latency["answer"]) - min(latency["echo"])) * 1e3,
            "ms",
            "unary Answer's p50 less the echo's, 1 connection",
        ),
    }


async def _embedding(application: Application, report: Report) -> dict[str, Figure]:
    report("embedding a question")
    times: list[float] = []
    for number in range(300):
        at = time.perf_counter()
        await application.embed(QUESTIONS[number % len(QUESTIONS)])
        times.append(time.perf_counter() - at)
    return _percentiles("embed", times, "one question of 8 to 12 tokens, in process")


async def _searches(application: Application, name: str, size: int, report: Report) -> dict[str, Figure]:
    report(f"searching {size} passages, and its bare statements in turns")
    scope = Scope(collection=name)
    pool, retriever = application.pool, application.retriever
    vectors = [await application.embed(question) for question in QUESTIONS]
    statements = [
        await bare_search(retriever, scope, question, vector)
        for question, vector in zip(QUESTIONS, vectors, strict=True)
    ]
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(_SEARCHES):
        place = number % len(QUESTIONS)
        at = time.perf_counter()
        await retriever.search(scope, QUESTIONS[place], vectors[place], k=5)
        between = time.perf_counter()
        await run_bare(pool, statements[place])
        times["ours"].append(between - at)
        times["bare"].append(time.perf_counter() - between)
    what = f"both legs and fusion over {size} passages, in process, warm"
    figures = _percentiles(f"retrieve_{size}", times["ours"][20:], what)
    bare = percentile(sorted(times["bare"][20:]), 0.5)
    ours = percentile(sorted(times["ours"][20:]), 0.5)
    figures[f"statements_{size}_p50_ms"] = Figure(bare * 1e3, "ms", "the same SQL alone, rows fetched and dropped")
    figures[f"retrieve_{size}_over_sql"] = Figure(ours / bare, "x", "the search over its bare statements, in turns")
    return figures


async def _loads(target: str, seconds: float, report: Report) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for connections in (1, 16, 64):
        report(f"standard route without a model, {connections} connections")
        load = await run_load(target, "answer", connections, seconds)
        what = f"unary Answer on the standard route, no LLM, 7,000 passages, {connections} connections"
        figures[f"standard_{connections}_calls_per_second"] = Figure(load["calls"] / load["seconds"], "1/s", what)
        figures[f"standard_{connections}_p50_ms"] = Figure(load["p50"] * 1e3, "ms", what)
        figures[f"standard_{connections}_p99_ms"] = Figure(load["p99"] * 1e3, "ms", what)
    report("classify")
    load = await run_load(target, "classify", 1, seconds)
    figures["classify_p50_ms"] = Figure(load["p50"] * 1e3, "ms", "Classify over gRPC, embedding included, 1 connection")
    figures["classify_p99_ms"] = Figure(load["p99"] * 1e3, "ms", "the same")
    return figures


async def _start(report: Report) -> dict[str, Figure]:
    """Start a server process on this database and read its memory after some questions."""
    report("start of a server process")
    free = ("SERVER__PORT", "SERVER__METRICS_PORT", "HTTP__PORT")
    environment = os.environ | {f"POINTSMAN_{key}": "0" for key in free}
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router.cli", "serve"),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None  # noqa: S101 - asked for above
        target = ""
        async with asyncio.timeout(60):
            while not target:
                line = (await process.stderr.readline()).decode()
                if not line:
                    raise FailedPrecondition("the server ended before it served; run `pointsman serve` to see why")
                if "serves gRPC on " in line:
                    target = line.split("serves gRPC on ", 1)[1].split(",", 1)[0].strip()
        started = time.perf_counter() - began
        draining = asyncio.create_task(process.stderr.read())
        await run_load(target, "answer", 4, 2.0)
        resident = await _resident_bytes(process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 30)
    await draining
    return {
        "start_seconds": Figure(started, "s", "`pointsman serve` to SERVING, database up, collections present"),
        "resident_mb": Figure(resident / 1e6, "MB", "resident memory of that process after 2 s of questions"),
    }


async def _resident_bytes(pid: int) -> int:
    """Resident memory of a process; by /proc, or by `ps` where there is none."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():  # noqa: ASYNC240
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))  # noqa: ASYNC240
        return int(line.split()[1]) * 1024
    process = await asyncio.create_subprocess_exec("ps", "-o", "rss=", "-p", str(pid), stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 10)
    return int(output) * 1024


async def run_load(target: str, rpc: str, connections: int, seconds: float) -> dict[str, Any]:
    """Call an RPC of a server from a process of its own and return what that measured."""
    return await load_process("router.bench.load", target, rpc, str(connections), seconds=seconds)


async def load_process(module: str, *arguments: str, seconds: float) -> dict[str, Any]:
    """Run a load generator for `seconds`, its last argument, as a process, and return the JSON that it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments, f"{seconds:g}"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), seconds + 60)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise FailedPrecondition(f"the load generator failed ({' '.join(arguments)}); its message is above")
    report: dict[str, Any] = json.loads(output)
    return report


def _percentiles(name: str, times: list[float], what: str) -> dict[str, Figure]:
    ordered = sorted(times)
    return {
        f"{name}_p50_ms": Figure(percentile(ordered, 0.5) * 1e3, "ms", what),
        f"{name}_p99_ms": Figure(percentile(ordered, 0.99) * 1e3, "ms", what),
    }


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": f"{load:.2f}",
    }
