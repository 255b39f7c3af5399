"""How many calls a second one process answers, over the number of connections, and how fast it starts."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from router.bench.figure import Figure, Figures, Report
from router.bench.load import run_load
from router.bench.processes import resident_bytes, started, stopped
from standard.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.bench.callers import Caller

_READY_SECONDS: Final = 60.0


async def curve_figures(
    target: str, caller: Caller, collection: str, connections: Sequence[int], seconds: float, report: Report
) -> Figures:
    """Throughput and latency of the standard route without a model, a load a number of connections; then Classify."""
    figures: Figures = {}
    for count in connections:
        report(f"standard route without a model, {count} connections")
        load = await run_load(target, "standard", count, seconds, collection=collection, caller=caller)
        what = f"unary Answer on the standard route, no LLM, {collection}, connections: {count}"
        figures[f"standard_{count}_calls_per_second"] = Figure(load["calls"] / load["seconds"], "1/s", what)
        figures[f"standard_{count}_p50_ms"] = Figure(load["p50"] * 1e3, "ms", what)
        figures[f"standard_{count}_p99_ms"] = Figure(load["p99"] * 1e3, "ms", what)
    report("classify")
    load = await run_load(target, "classify", 1, seconds, caller=caller)
    figures["classify_p50_ms"] = Figure(load["p50"] * 1e3, "ms", "Classify over gRPC, embedding included, 1 connection")
    figures["classify_p99_ms"] = Figure(load["p99"] * 1e3, "ms", "the same")
    return figures


async def start_figures(collection: str, seconds: float, report: Report) -> Figures:
    """Start a server process on this database and read its memory after some questions."""
    report("start of a server process")
    free = ("SERVER__PORT", "SERVER__METRICS_PORT", "HTTP__PORT")
    environment = os.environ | {f"POINTSMAN_{key}": "0" for key in free} | {"POINTSMAN_AUTH__MODE": "none"}
    began = time.perf_counter()
    process = await started(sys.executable, "-m", "router.cli", "serve", environment=environment, errors=True)
    try:
        assert process.stderr is not None  # noqa: S101 - asked for above
        target = ""
        async with asyncio.timeout(_READY_SECONDS):
            while not target:
                line = (await asyncio.to_thread(process.stderr.readline)).decode()
                if not line:
                    raise FailedPrecondition("the server ended before it served; run `pointsman serve` to see why")
                if "serves gRPC on " in line:
                    target = line.split("serves gRPC on ", 1)[1].split(",", 1)[0].strip()
        took = time.perf_counter() - began
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(process.stderr.read))  # until it ends: a full pipe would hold it up
            try:
                await run_load(target, "standard", 4, seconds, collection=collection)
                resident = await resident_bytes(process.pid)
            finally:
                process.terminate()
    finally:
        await stopped(process)
    return {
        "start_seconds": Figure(took, "s", "`pointsman serve` to SERVING, database up, collections present", 3.0),
        "resident_mb": Figure(
            resident / 1e6, "MB", f"resident memory of that process after {seconds:g} s of questions", 300.0
        ),
    }
