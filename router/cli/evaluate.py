"""`pointsman eval`: measurements on data with known answers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape
from rich.table import Table

from router.cli.evaluate_answers import answers
from router.cli.label import Collection, Since, Tenant, moment
from router.cli.options import Json
from router.cli.output import diagnostics, print_json, progress_bars, results
from router.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from rich.console import Console

    from router.evaluation.report import Report
    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder
    from standard.retrieval.retriever import RetrievalSettings

Data = Annotated[Path, typer.Option("--data", help="Folder of the data.", exists=True, file_okay=False)]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Only this set; may be given several times.")]
Seed = Annotated[int, typer.Option(help="Seed of slices.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Also write report.md, charts and results.json there.")
]

_LEGS = ("dense", "lexical", "rrf", "hybrid", "linked")
_METRICS = ("recall@5", "recall@10", "all@5", "all@10")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Measure retrieval and routing on data with known answers.", no_args_is_help=True)
    group.command("retrieval")(retrieval)
    group.command("routing")(routing)
    group.command("classifier")(classifier)
    group.command("injection")(injection)
    group.command("drift")(drift)
    group.command("answers")(answers)
    app.add_typer(group, name="eval")


def retrieval(
    data: Data,
    sets: Sets = None,
    questions: Annotated[int, typer.Option(help="At most so many questions a set; 0 = all.")] = 0,
    documents: Annotated[int, typer.Option(help="With --questions: at most so many documents a set.")] = 2000,
    seed: Seed = 0,
    study: Annotated[bool, typer.Option("--study", help="Compare other ways to fuse, cross-validated.")] = False,
    out: Out = None,
    json_output: Json = False,
) -> int:
    """Recall of each leg and of the fused search, on sets of corpus*.jsonl and questions.jsonl."""
    folder = prepared(out)

    async def run() -> dict[str, Any]:
        from router.evaluation.retrieval import Slice, evaluate_retrieval

        async with _corpus() as (pool, embedder, settings):
            return await evaluate_retrieval(
                pool,
                embedder,
                data,
                names=sets or (),
                part=Slice(questions, documents, seed) if questions else None,
                study=study,
                settings=settings,
                console=diagnostics(),
            )

    report = asyncio.run(run())
    from router.evaluation.retrieval_report import retrieval_report

    return ended(
        report,
        folder,
        retrieval_report,
        json_output=json_output,
        show=lambda found: _show(results(), cast("Mapping[str, Mapping[str, Mapping[str, float]]]", found["sets"])),
    )


def routing(
    data: Data,
    sets: Sets = None,
    model: Annotated[Path | None, typer.Option(help="Folder of a trained routing model; default: the shipped.")] = None,
    out: Out = None,
    json_output: Json = False,
) -> int:
    """Which questions go agentic, and whether those that stay have complete evidence: text, evidence and both."""
    folder = prepared(out)

    async def run() -> dict[str, Any]:
        from classifier.artifact import SHIPPED
        from router.evaluation.routing import evaluate_routing

        async with _corpus() as (pool, embedder, settings):
            with progress_bars() as progress:
                return await evaluate_routing(
                    pool, embedder, data, names=sets or (), model=model or SHIPPED, settings=settings, progress=progress
                )

    report = asyncio.run(run())
    from router.evaluation.routing_report import routing_report

    return ended(report, folder, routing_report, json_output=json_output)


def classifier(
    data: Data,
    model: Annotated[Path | None, typer.Option(help="Folder of a trained routing model; default: the shipped.")] = None,
    out: Out = None,
    json_output: Json = False,
) -> int:
    """The text model on held-out domains of our own questions and on public families it has not seen."""
    folder = prepared(out)

    async def run() -> dict[str, Any]:
        from router.evaluation.classifier import evaluate_classifier

        with progress_bars() as progress:
            return await asyncio.to_thread(evaluate_classifier, data, model=model, progress=progress)

    report = asyncio.run(run())
    from router.evaluation.classifier_report import classifier_report

    return ended(report, folder, classifier_report, json_output=json_output)


def injection(data: Data, out: Out = None, json_output: Json = False) -> int:
    """The injection scan on attacks and hard negatives: recalls and false flags, whole sources and kinds held out."""
    from router.evaluation.injection import evaluate_injection

    folder = prepared(out)
    console = diagnostics()
    report = evaluate_injection(data, progress=lambda line: console.print(line, markup=False))
    from router.evaluation.injection_report import injection_report

    return ended(report, folder, injection_report, json_output=json_output)


def drift(
    since: Since = "",
    collection: Collection = "",
    tenant: Tenant = "",
    model: Annotated[Path | None, typer.Option(help="Folder of a trained routing model; default: the shipped.")] = None,
    out: Out = None,
    json_output: Json = False,
) -> int:
    """Whether the journal's questions moved away from what the routing model was trained on."""
    folder = prepared(out)
    settings = load_settings()
    begun = moment(since)

    async def run() -> dict[str, Any]:
        from router.evaluation.drift import evaluate_drift

        async with _corpus() as (pool, embedder, _):
            return await evaluate_drift(
                pool,
                embedder,
                consent=settings.journal.questions,
                retention_days=settings.journal.retention_days,
                since=begun,
                tenant=tenant,
                collection=collection,
                model=model or (Path(settings.routing.model) if settings.routing.model else None),
            )

    report = asyncio.run(run())
    from router.evaluation.drift import drift_report

    return ended(report, folder, drift_report, json_output=json_output, show=_show_drift)


def _show_drift(report: Mapping[str, Any]) -> None:
    console = results()
    for name, found in report["signals"].items():
        psi = "-" if found["psi"] is None else f"{found['psi']:.3f}"
        console.print(f"{name}: PSI {psi} over {found['questions']} questions: [bold]{found['level']}[/bold]")
    for name, count in report["left_out"].items():
        console.print(f"left out, {name.replace('_', ' ')}: {count}")
    for warning in report["warnings"]:
        console.print(f"[yellow]{escape(warning)}[/yellow]")


def ended(
    found: dict[str, Any],
    folder: Path | None,
    report_of: Callable[[dict[str, Any]], Report],
    *,
    json_output: bool,
    show: Callable[[dict[str, Any]], None] = lambda found: results().print_json(data=found),
) -> int:
    """Write the report of what was found where there is a `folder` for it, and print it: as JSON, or for people."""
    if folder is not None:
        written(folder, report_of(found), found)
    print_json(found) if json_output else show(found)
    return 0


def prepared(out: Path | None) -> Path | None:
    """The folder of a report, made and tried before anything is measured; None where none is wanted."""
    from router.evaluation.report import prepare

    return None if out is None else prepare(out)


def written(folder: Path, report: Report, results_: Mapping[str, Any]) -> None:
    """Write a report and say where it is."""
    from router.evaluation.report import write_report

    paths = write_report(folder, report, results_)
    diagnostics().print(f"report: {paths[0]} and {len(paths) - 1} files beside it", markup=False)


@asynccontextmanager
async def _corpus() -> AsyncIterator[tuple[Pool, Embedder, RetrievalSettings]]:
    """The migrated database, the embedder and the settings of retrieval."""
    from router.configs import database_config, embedding_config, retrieval_settings
    from standard.database.migrate import migrate
    from standard.database.pool import database_url, open_pool
    from standard.embedding.factory import open_embedder

    settings = load_settings()
    config = database_config(settings)
    async with database_url(config) as url:
        await migrate(url, allow_old_pgvector=settings.database.accept_old_pgvector)
        async with open_pool(config) as pool, open_embedder(embedding_config(settings)) as embedder:
            yield pool, embedder, retrieval_settings(settings)


def _show(console: Console, sets: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    table = Table(title="Retrieval", title_justify="left")
    for column in ("set", "leg", *_METRICS):
        table.add_column(column, justify="left" if column in {"set", "leg"} else "right")
    for name, legs in sets.items():
        for leg in _LEGS:
            table.add_row(name, leg, *(f"{legs[leg][metric]:.3f}" for metric in _METRICS))
        table.add_section()
    console.print(table)
