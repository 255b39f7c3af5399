"""`pointsman bench`: measure the gateway on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop
from rich.table import Table

from router.cli.demo import demo_folder
from router.cli.evaluate import Out, ended, prepared
from router.cli.options import Json
from router.cli.output import diagnostics, progress_bar, results
from router.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping


_LARGEST = 1_000_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench)


def bench(
    sizes: Annotated[
        str, typer.Option(help="Passages of the synthetic collections, comma-separated; questions go to the first.")
    ] = "7000,100000",
    seconds: Annotated[float, typer.Option(help="Length of each load.", min=0.1, max=600.0)] = 6.0,
    peers: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON",
            exists=True,
            dir_okay=False,
            help="A Python that has LiteLLM and semantic-router (make bench-peers); without it they are left out.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small slice that shows that it works, and nothing of speed.")
    ] = False,
    out: Out = None,
    json_output: Json = False,
) -> int:
    """Measure CPU, latency, throughput, streams, cancellation, ingest and start, beside a bare grpc.aio echo."""
    from router.bench.figure import load_average, machine
    from router.bench.report import bench_report, bench_results
    from router.bench.run import Plan, quick_plan, run_bench

    folder = prepared(out)
    corpus = demo_folder() / "corpus"
    python = None if peers is None else peers.absolute()
    if quick:
        plan = quick_plan(corpus, peers=python)
    else:
        plan = Plan(corpus, sizes=_sizes(sizes), seconds=seconds, peers=python)
    here = machine()
    if python is None:
        diagnostics().print("without --peers LiteLLM and semantic-router are left out: make bench-peers brings them")
    with progress_bar(diagnostics()) as bar:
        task = bar.add_task("", total=plan.steps, rate="")

        def report(line: str) -> None:
            bar.console.print(f"[dim]{line}[/dim]")
            bar.update(task, description=line[:40], advance=1)

        figures = uvloop.run(run_bench(load_settings(), plan, report=report))
        bar.update(task, completed=plan.steps)
    found = bench_results(here | {"load_after": load_average()}, plan, figures)
    return ended(found, folder, bench_report, json_output=json_output, show=_show)


def _sizes(given: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(size) for size in given.split(","))
    except ValueError:
        raise typer.BadParameter(f"--sizes takes numbers, not {given!r}") from None
    if not all(1 <= count <= _LARGEST for count in counts):
        raise typer.BadParameter(f"--sizes takes numbers from 1 to {_LARGEST}")
    return counts


def _show(found: Mapping[str, Any]) -> None:
    here = found["machine"]
    table = Table(title=f"{here['processor']}, {here['cores']} cores, load {here['load_before']} before the run")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("goal", justify="right")
    table.add_column("what")
    for name, figure in found["figures"].items():
        goal = "" if figure["goal"] is None else f"≤ {figure['goal']:g}"
        table.add_row(name, f"{figure['value']:,.2f} {figure['unit']}", goal, figure["what"])
    results().print(table)
