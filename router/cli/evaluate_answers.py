"""`pointsman eval answers`: whole answers, measured."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from router.cli.options import Json
from router.cli.output import diagnostics, print_json, progress_bars, results
from router.settings import load_settings

if TYPE_CHECKING:
    from rich.console import Console

Controller = Literal["decide", "plan", "tools", "offline", "gold"]

_SHOWN = (
    "recall@10",
    "all@10",
    "f1",
    "says_answer",
    "abstained_answerable",
    "abstained_unanswerable",
    "agentic_share",
    "steps",
    "billed_tokens",
    "citation_precision",
)


def answers(
    data: Annotated[Path, typer.Option("--data", help="Folder of the sets.", exists=True, file_okay=False)],
    sets: Annotated[
        list[str] | None, typer.Option("--set", "--sets", help="Only these sets; several times, or with commas.")
    ] = None,
    route: Annotated[Literal["auto", "standard", "agentic"], typer.Option(help="How questions are routed.")] = "auto",
    controller: Annotated[
        Controller | None,
        typer.Option(help="Controller of the loop; gold searches for the gold decomposition. Default: the settings'."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many questions of either kind a set; 0 = all.")] = 0,
    documents: Annotated[int, typer.Option(min=0, help="At most so many documents a set; 0 = all.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    budgets: Annotated[
        str | None,
        typer.Option(help="Step budgets to measure as well: 1,2,3,5,8,12, or none. Default: all where no model costs."),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Passages of a search.")] = 5,
    at_once: Annotated[int, typer.Option(min=1, max=64, help="Questions at a time; times are honest with 1.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", "--resume", help="Folder of records and report; an interrupted run goes on from it."),
    ] = None,
    json_output: Json = False,
) -> int:
    """Recall, EM, F1, abstentions, citations, steps, tokens, time, against single-shot on the same questions."""

    async def run() -> dict[str, Any]:
        from router.application import open_application
        from router.evaluation.answers.evaluate import BUDGETS, Plan, evaluate_answers
        from router.evaluation.answers.report import answers_report
        from router.evaluation.report import prepare, write_report
        from standard.domain.question import Route

        settings = load_settings()
        free = not settings.llm.base_url
        plan = Plan(
            names=tuple(name for given in sets or () for name in given.split(",") if name),
            route=None if route == "auto" else Route(route),
            controller=controller,
            limit=limit,
            documents=documents,
            seed=seed,
            top_k=top_k,
            budgets=_steps(budgets, BUDGETS if free and route == "agentic" else ()),
            at_once=at_once,
        ).checked()
        folder = None if out is None else prepare(out)
        async with open_application(settings) as application:
            with progress_bars() as show:
                report, records = await evaluate_answers(application, data, plan, folder=folder, progress=show)
        if folder is not None:
            written = write_report(folder, answers_report(report, records), report)
            diagnostics().print(f"written: {written[0]}", markup=False)
        return report

    report = asyncio.run(run())
    if json_output:
        print_json(report)
    else:
        _show(results(), report)
    return 0


def _steps(given: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    if given is None:
        return default
    if given.strip() in {"", "none"}:
        return ()
    try:
        return tuple(dict.fromkeys(int(part) for part in given.split(",")))
    except ValueError:
        raise typer.BadParameter(f"{given!r} is no list of numbers", param_hint="--budgets") from None


def _show(console: Console, report: dict[str, Any]) -> None:
    table = Table(title="Answers", title_justify="left")
    table.add_column("set")
    for name in ("questions", *_SHOWN):
        table.add_column(name.replace("_", " "), justify="right")
    for name, figures in report["sets"].items():
        table.add_row(name, str(figures["questions"]), *(_figure(figures[key]) for key in _SHOWN))
    console.print(table)


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
