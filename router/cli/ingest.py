"""`pointsman ingest`: files, folders, globs and standard input into a collection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer
from google.protobuf import json_format
from pointsman.client import Pointsman
from pointsman.v1 import corpus_pb2
from rich.markup import escape

from router.cli.connect import remote_errors
from router.cli.options import Json, Key, Server
from router.cli.output import diagnostics, print_json, progress_bar, results
from router.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rich.console import Console

    from router.application import Application
    from standard.corpus.document import Rejection, SourceDocument
    from standard.corpus.ingest import IngestProgress, IngestReport

_SHOWN_REJECTIONS = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ingest")(ingest)


def ingest(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Files, folders or globs; - reads JSONL from standard input."),
    ] = None,
    file: Annotated[list[str] | None, typer.Option("--file", help="The same as PATH.")] = None,
    collection: Annotated[str, typer.Option(help="The collection; made when it is missing.")] = "default",
    prune: Annotated[bool, typer.Option("--prune", help="Delete documents that were not brought this time.")] = False,
    tenant: Annotated[str, typer.Option(help="Whose documents, where no --server is named.")] = "default",
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Ingest documents; running it again changes only what changed. Exit 1 where something was refused."""
    given = [*(paths or []), *(file or [])]
    if not given:
        raise typer.BadParameter("give at least one PATH, or - for standard input")
    settings = load_settings()

    async def here() -> int:
        from router.application import open_application

        async with open_application(settings) as application:
            report = await ingest_paths(
                application, given, collection, prune=prune, console=diagnostics(), tenant=tenant
            )
        view = report_view(report)
        print_json(view) if json_output else show_report(results(), report)
        return 1 if report.rejected_count else 0

    async def there(target: str) -> int:
        rejected: list[Rejection] = []
        async with Pointsman(target, token=key) as client, remote_errors():
            documents = _documents(given, rejected, settings.limits.document_bytes)
            answer = await client.ingest(documents, collection=collection, prune=prune)
        view = remote_view(answer, rejected)
        if json_output:
            print_json(view)
        else:
            _show_view(results(), view)
        return 1 if view["rejected_count"] else 0

    return asyncio.run(here() if server is None else there(server))


async def ingest_paths(
    application: Application,
    paths: list[str],
    collection: str,
    *,
    prune: bool,
    console: Console,
    tenant: str = "default",
) -> IngestReport:
    """Ingest paths with a progress bar on `console`; its total is known once every file was found."""
    from standard.corpus.document import SourceDocument
    from standard.corpus.sources import in_thread, read_sources

    with progress_bar(console) as bar:
        task = bar.add_task("documents", total=None, rate="")
        found = 0

        async def counted() -> AsyncIterator[SourceDocument | Rejection]:
            nonlocal found
            limit = application.settings.limits.document_bytes
            async for item in in_thread(read_sources(paths, max_bytes=limit)):
                found += isinstance(item, SourceDocument)
                yield item
            bar.update(task, total=found)

        def show(progress: IngestProgress) -> None:
            rate = f"{progress.passages} passages, {progress.passages_per_second:.0f}/s"
            bar.update(task, completed=progress.documents, rate=rate)

        report = await application.ingest(tenant, collection, counted(), prune=prune, progress=show)
        bar.update(task, completed=report.added + report.replaced + report.unchanged, total=found)
    return report


async def _documents(paths: list[str], rejected: list[Rejection], max_bytes: int) -> AsyncIterator[corpus_pb2.Document]:
    from standard.corpus.document import Rejection
    from standard.corpus.sources import in_thread, read_sources

    async for item in in_thread(read_sources(paths, max_bytes=max_bytes)):
        if isinstance(item, Rejection):
            rejected.append(item)
            continue
        document = corpus_pb2.Document(
            id=item.document_id, title=item.title, text=item.text, uri=item.uri, access_groups=item.groups
        )
        json_format.ParseDict(dict(item.metadata), document.metadata)
        yield document


def report_view(report: IngestReport) -> dict[str, Any]:
    """A report as JSON values."""
    return {
        "added": report.added,
        "replaced": report.replaced,
        "unchanged": report.unchanged,
        "pruned": report.pruned,
        "passages": report.passages,
        "rescanned": report.rescanned,
        "seconds": report.seconds,
        "passages_per_second": report.passages_per_second,
        "embedder_share": report.embedder_share,
        "indexed": report.indexed,
        "prune_skipped": report.prune_skipped,
        "rejected_count": report.rejected_count,
        "rejected": [_rejection_view(each) for each in report.rejected],
    }


def remote_view(answer: corpus_pb2.IngestDocumentsResponse, rejected: list[Rejection]) -> dict[str, Any]:
    """A server's report, and what was refused before it was sent, as JSON values."""
    refused = [_rejection_view(each) for each in rejected] + [
        {"source": "stream", "line": each.number, "id": each.id, "reason": each.reason} for each in answer.rejected
    ]
    return {
        "added": answer.added,
        "replaced": answer.replaced,
        "unchanged": answer.unchanged,
        "pruned": answer.pruned,
        "passages": answer.passages,
        "rescanned": answer.rescanned,
        "seconds": answer.seconds,
        "rejected_count": len(refused),
        "rejected": refused,
    }


def _rejection_view(each: Rejection) -> dict[str, Any]:
    return {"source": each.source, "line": each.line, "id": each.document_id, "reason": each.reason}


def show_report(console: Console, report: IngestReport) -> None:
    """Print a report for people."""
    _show_view(console, report_view(report))


def _show_view(console: Console, view: dict[str, Any]) -> None:
    rate = f", {view['passages_per_second']:.0f} passages/s" if view.get("passages_per_second") else ""
    console.print(
        f"{view['added']} added, {view['replaced']} replaced, {view['unchanged']} unchanged, {view['pruned']} pruned:"
        f" {view['passages']} passages in {view['seconds']:.1f} s{rate}"
    )
    if view["rescanned"]:
        console.print(f"{view['rescanned']} passages judged again: the rules of the injection scan have changed")
    if view.get("prune_skipped"):
        console.print(f"[yellow]not pruned: {escape(view['prune_skipped'])}[/yellow]")
    for each in view["rejected"][:_SHOWN_REJECTIONS]:
        place = f"{each['source']}:{each['line']}" if each["line"] else each["source"]
        console.print(f"[yellow]refused {escape(place)}: {escape(each['reason'])}[/yellow]")
    hidden = view["rejected_count"] - _SHOWN_REJECTIONS
    if hidden > 0:
        console.print(f"[yellow]... and {hidden} more; --json lists them[/yellow]")
