"""CPU a call by route, of the gateway's process and of the database's: what sizing is computed from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from router.bench.figure import Figure, Figures, Report
from router.bench.load import run_load
from router.bench.processes import cpu_seconds, name_of, parent_of
from standard.database.pool import connection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.bench.callers import Caller
    from standard.database.pool import Pool

HOUR: Final = 3600.0


async def cost_figures(
    pool: Pool,
    target: str,
    caller: Caller,
    collection: str,
    routes: Mapping[str, tuple[str, str]],
    seconds: float,
    report: Report,
) -> Figures:
    """Load each of `routes` (name of the figure: RPC, what it is) with 4 connections; count CPU of both processes."""
    figures: Figures = {}
    server = await postmaster(pool)
    for name, (rpc, what) in routes.items():
        report(f"CPU a call: {what}")
        before, of_database = time.process_time(), _used(server)
        load = await run_load(target, rpc, 4, seconds, collection=collection, caller=caller)
        calls = load["calls"] + 4  # the first of each connection warms it up and is not counted there
        cpu = (time.process_time() - before) / calls
        figures[f"cost_{name}_cpu_ms"] = Figure(cpu * 1e3, "ms", f"CPU of the gateway's process a call: {what}")
        figures[f"cost_{name}_calls_per_core_hour"] = Figure(HOUR / cpu, "1/h", f"calls of one core an hour: {what}")
        after = _used(server)
        if of_database is not None and after is not None:
            database = (after - of_database) / calls
            figures[f"cost_{name}_database_cpu_ms"] = Figure(
                database * 1e3, "ms", f"CPU of the database's processes a call: {what}"
            )
    return figures


async def postmaster(pool: Pool) -> int | None:
    """The process id of the database server's main process; None where it is on another machine, or without /proc."""
    async with connection(pool) as conn:
        cursor = await conn.execute(b"select pg_backend_pid()")
        row = await cursor.fetchone()
    if row is None or not name_of(row[0]).startswith("postgres"):
        return None
    return parent_of(row[0])


def _used(server: int | None) -> float | None:
    return None if server is None else cpu_seconds(server)
