"""`pointsman replay`: recorded exchanges of a legacy endpoint, sent again."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from router.cli.inputs import BadLine, json_lines, opened
from router.cli.options import Json, Key
from router.cli.output import diagnostics, print_json, progress_bar, results
from router.settings import load_settings
from standard.domain.errors import InvalidInput, PointsmanError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from router.replay.recorded import Exchange
    from router.replay.run import Embed
    from router.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def replay(
    file: Annotated[str, typer.Argument(help="Recorded exchanges, JSONL; - reads standard input.")],
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where to send them; default: the server on this data directory, else in process."
        ),
    ] = None,
    contract: Annotated[
        list[str] | None,
        typer.Option(help="Contract file or shipped name; default: those of the settings. May be given again."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME:VALUE", help="A header for every request. May be given again.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write the report as an HTML page as well.")] = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Send recorded exchanges and report what differs in structure, words and time; exit 1 on another structure."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    headers |= dict(_header(each) for each in header or ())
    exchanges, refused = _read(file)
    settings = load_settings()
    if contract:
        http = settings.http.model_copy(update={"contracts": tuple(contract)})
        settings = settings.model_copy(update={"http": http})
    found = asyncio.run(_replay(settings, server, exchanges, headers, in_process=bool(contract)))
    from router.replay.page import page as page_of
    from router.replay.report import report

    summary = report(found, refused)
    if page is not None:
        page.write_text(page_of(summary, "standard input" if file == "-" else file), encoding="utf-8")
        diagnostics().print(f"the report is in {escape(str(page))}")
    print_json(summary) if json_output else _show(summary)
    return 0 if found and not refused and summary["structurally_equal"] == summary["exchanges"] else 1


def _header(given: str) -> tuple[str, str]:
    name, separator, value = given.partition(":")
    if not separator or not name.strip().isascii() or not name.strip() or not value.isprintable():
        raise typer.BadParameter(f"--header takes NAME:VALUE, not {given!r}")
    return name.strip().lower(), value.strip()


def _read(file: str) -> tuple[list[Exchange], list[tuple[str, str]]]:
    from router.replay.recorded import to_exchange

    exchanges: list[Exchange] = []
    refused: list[tuple[str, str]] = []
    with opened(file) as handle:
        for row in json_lines(handle):
            if isinstance(row, BadLine):
                refused.append((row.id, row.error))
                continue
            try:
                exchanges.append(to_exchange(row))
            except PointsmanError as error:
                refused.append((str(row["id"]), error.message))
    if not exchanges and not refused:
        raise InvalidInput("FILE", f"{file}: holds no exchange")
    return exchanges, refused


async def _replay(
    settings: Settings, server: str | None, exchanges: list[Exchange], headers: dict[str, str], *, in_process: bool
) -> Any:  # noqa: ANN401 - list[Replayed], imported when it is needed
    from router.configs import embedding_config
    from router.http.contract.load import load_contracts
    from router.process.serverlock import running_server
    from router.replay.run import replay as send_all
    from standard.embedding.factory import open_embedder

    contracts = load_contracts(settings.http.contracts)
    running = running_server(settings.data_dir)
    url = server or (running.http_url if running is not None and not in_process else None)
    async with AsyncExitStack() as stack:
        if url is not None:
            embedder = await stack.enter_async_context(open_embedder(embedding_config(settings)))
            embed: Embed = embedder.embed_queries
        else:
            from router.application import open_application
            from router.process.serving import local_gate, open_http_beside

            application = await stack.enter_async_context(open_application(settings))
            gate, local = local_gate(application)
            headers = {"authorization": f"Bearer {local}"} | headers
            port = await stack.enter_async_context(open_http_beside(application, port=0, gate=gate))
            host = f"[{settings.http.host}]" if ":" in settings.http.host else settings.http.host
            url, embed = f"http://{host}:{port}", application.embedder.embed_queries
        with progress_bar() as bar:
            task = bar.add_task("replaying", total=len(exchanges), rate="")
            return await send_all(
                url,
                exchanges,
                contracts,
                embed,
                headers=headers,
                progress=lambda done: bar.update(task, completed=done),
            )


def _show(summary: Mapping[str, Any]) -> None:
    console = results()
    for item in summary["refused"]:
        diagnostics().print(escape(f"{item['id']}: {item['error']}"))
    console.print(f"[bold]{summary['structurally_equal']} of {summary['exchanges']}[/bold] structurally equal")
    if summary["differences"]:
        table = Table("endpoint", "kind", "where", "recorded", "now", "exchanges")
        for each in summary["differences"]:
            cells = [each[key] for key in ("endpoint", "kind", "path", "expected", "found")]
            table.add_row(*(escape(str(cell)) for cell in cells), str(each["count"]))
        console.print(table)
    for name, values in (
        ("cosine of answers", summary["similarity"]["cosine"]),
        ("shared words (F1)", summary["similarity"]["token_f1"]),
        ("seconds now", summary["seconds"]["now"]),
        ("seconds recorded", summary["seconds"]["recorded"]),
    ):
        if values is not None:
            console.print(f"{name:>18}: " + "  ".join(f"{key} {value:.3f}" for key, value in values.items()))
