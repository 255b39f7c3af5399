"""`pointsman bench`: measure the gateway on this machine."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer
import uvloop
from rich.table import Table

from router.cli.options import Json
from router.cli.output import diagnostics, print_json, results
from router.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench)


def bench(
    sizes: Annotated[str, typer.Option(help="Passages of the synthetic collections, comma-separated.")] = "7000,100000",
    seconds: Annotated[float, typer.Option(help="Length of each load.", min=0.5, max=600.0)] = 6.0,
    json_output: Json = False,
) -> int:
    """Measure CPU, latency, throughput, memory and start, side by side with a bare grpc.aio echo."""
    from router.bench.figures import machine, run_bench

    try:
        counts = [int(size) for size in sizes.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--sizes takes numbers, not {sizes!r}") from None
    if not counts or counts[0] != 7000 or not all(1 <= count <= 1_000_000 for count in counts):
        raise typer.BadParameter("--sizes begins with 7000; each is 1 to 1000000")
    # gRPC logs a line about each process that is started beside its threads.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    console = diagnostics()
    here = machine()

    def report(line: str) -> None:
        console.print(f"[dim]{line} ...[/dim]")

    figures = uvloop.run(run_bench(load_settings(), counts, seconds, report=report))
    if json_output:
        print_json({"machine": here, "figures": {name: asdict(figure) for name, figure in figures.items()}})
        return 0
    table = Table(title=f"{here['processor']}, {here['cores']} cores, load {here['load_before']} before the run")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("what")
    for name, figure in figures.items():
        table.add_row(name, f"{figure.value:,.2f} {figure.unit}", figure.what)
    results().print(table)
    return 0
