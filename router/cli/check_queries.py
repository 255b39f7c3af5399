"""`pointsman check-queries`: what the similarity guard would refuse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from router.cli.inputs import BadLine, json_lines, opened, sendable_text_of
from router.cli.options import Json
from router.cli.output import print_json, refuse, results
from router.settings import load_settings
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from agentic.same_need.check import QueryCheck, QueryPair

_AT_ONCE = 256


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check-queries")(check_queries)


def check_queries(
    path: Annotated[str, typer.Argument(metavar="FILE", help="JSONL of {id, a, b}: a was asked, now b.")] = "",
    file: Annotated[str, typer.Option("--file", help="The same as FILE.")] = "",
    json_output: Json = False,
) -> int:
    """Say for each pair whether the second query would be refused as a repeat of the first, and why."""
    source = path or file
    if not source:
        raise typer.BadParameter("give a FILE, or - for standard input")

    async def run() -> int:
        from agentic.same_need.check import QueryPair
        from agentic.same_need.check import check_queries as check
        from router.configs import agentic_settings, embedding_config
        from standard.embedding.factory import open_embedder

        settings = load_settings()
        guards = agentic_settings(settings).guards
        refused = 0
        async with open_embedder(embedding_config(settings)) as embedder:

            async def flush(pairs: list[QueryPair]) -> None:
                for found in await check(pairs, embedder.embed_queries, guards):
                    _show(found, json_output=json_output)
                pairs.clear()

            waiting: list[QueryPair] = []
            with opened(source) as handle:
                for row in json_lines(handle):
                    try:
                        if isinstance(row, BadLine):
                            raise InvalidInput("line", row.error)
                        texts = [sendable_text_of(row, key) for key in ("a", "b")]
                        for key, text in zip(("a", "b"), texts, strict=True):
                            if not text.strip():
                                raise InvalidInput(key, "is blank")
                        waiting.append(QueryPair(row["id"], *texts))
                    except InvalidInput as error:
                        await flush(waiting)
                        refused += 1
                        refuse(row, error, json_output=json_output)
                    if len(waiting) >= _AT_ONCE:
                        await flush(waiting)
            await flush(waiting)
        return 1 if refused else 0

    return asyncio.run(run())


def _show(found: QueryCheck, *, json_output: bool) -> None:
    if json_output:
        print_json({"id": found.id, "distance": found.distance, "refused": found.refused, "reason": found.reason})
        return
    word = "[yellow]refused[/yellow]" if found.refused else "[green]allowed[/green]"
    results().print(f"{word}  {found.distance:.3f}  {escape(found.id)}  [dim]{escape(found.reason)}[/dim]")
