"""`pointsman eval`: measurements on data with known answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table

from router.cli.options import Json
from router.cli.output import diagnostics, print_json, results
from router.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

Data = Annotated[Path, typer.Option("--data", help="Folder of the data.", exists=True, file_okay=False)]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Only this set; may be given several times.")]
Seed = Annotated[int, typer.Option(help="Seed of slices.")]

_LEGS = ("dense", "lexical", "rrf", "hybrid", "linked")
_METRICS = ("recall@5", "recall@10", "all@5", "all@10")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Measure retrieval and routing on data with known answers.", no_args_is_help=True)
    group.command("retrieval")(retrieval)
    app.add_typer(group, name="eval")


def retrieval(
    data: Data,
    sets: Sets = None,
    questions: Annotated[int, typer.Option(help="At most so many questions a set; 0 = all.")] = 0,
    documents: Annotated[int, typer.Option(help="With --questions: at most so many documents a set.")] = 2000,
    seed: Seed = 0,
    study: Annotated[bool, typer.Option("--study", help="Compare other ways to fuse, cross-validated.")] = False,
    json_output: Json = False,
) -> int:
    """Recall of each leg and of the fused search, on sets of corpus*.jsonl and questions.jsonl."""

    async def run() -> dict[str, Any]:
        from router.configs import database_config, embedding_config, retrieval_settings
        from router.evaluation.retrieval import Slice, evaluate_retrieval
        from standard.database.migrate import migrate
        from standard.database.pool import database_url, open_pool
        from standard.embedding.factory import open_embedder

        settings = load_settings()
        config = database_config(settings)
        async with database_url(config) as url:
            await migrate(url, allow_old_pgvector=settings.database.accept_old_pgvector)
            async with open_pool(config) as pool, open_embedder(embedding_config(settings)) as embedder:
                return await evaluate_retrieval(
                    pool,
                    embedder,
                    data,
                    names=sets or (),
                    part=Slice(questions, documents, seed) if questions else None,
                    study=study,
                    settings=retrieval_settings(settings),
                    console=diagnostics(),
                )

    report = asyncio.run(run())
    if json_output:
        print_json(report)
    else:
        _show(results(), cast("Mapping[str, Mapping[str, Mapping[str, float]]]", report["sets"]))
    return 0


def _show(console: Console, sets: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    table = Table(title="Retrieval", title_justify="left")
    for column in ("set", "leg", *_METRICS):
        table.add_column(column, justify="left" if column in {"set", "leg"} else "right")
    for name, legs in sets.items():
        for leg in _LEGS:
            table.add_row(name, leg, *(f"{legs[leg][metric]:.3f}" for metric in _METRICS))
        table.add_section()
    console.print(table)
