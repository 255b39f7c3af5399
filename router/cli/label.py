"""`pointsman label`: the journal's runs and their feedback as labels that `pointsman train` takes."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from router.cli.options import Json
from router.cli.output import print_json, results
from router.settings import load_settings
from router.written import write_at_once
from standard.domain.errors import InvalidInput
from standard.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.routing.labels import Label, LabelMaker
    from router.settings import Settings

Since = Annotated[
    str, typer.Option("--since", metavar="WHEN", help="Runs since then: 2026-11-30, 2026-11-30T08:00Z, 7d or 12h.")
]
Tenant = Annotated[str, typer.Option("--tenant", help="Only this tenant; default: all.")]
Collection = Annotated[str, typer.Option("--collection", help="Only this collection; default: all.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("label")(label)


def label(
    since: Since = "",
    collection: Collection = "",
    tenant: Tenant = "",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the labels there, as JSONL.")] = None,
    json_output: Json = False,
) -> int:
    """Turn ended runs and their feedback into labels for `pointsman train`; conflicts are shown and left out."""
    settings = load_settings()
    maker = asyncio.run(_made(settings, moment(since), tenant, collection))
    report = maker.report() | {"out": str(out) if out else None}
    if out is not None:
        write_labels(out, maker.labels())
    if json_output:
        print_json(report)
    else:
        _show(report)
    return 0


async def _made(settings: Settings, since: dt.datetime | None, tenant: str, collection: str) -> LabelMaker:
    from router.configs import database_config
    from router.journal.codec import EventCodec
    from router.journal.finished import finished_runs
    from router.routing.labels import LabelMaker
    from standard.database.migrate import migrate
    from standard.database.pool import database_url, open_pool

    maker = LabelMaker(settings.journal.questions)
    config = database_config(settings)
    async with database_url(config) as url:
        await migrate(url, allow_old_pgvector=settings.database.accept_old_pgvector)
        async with open_pool(config) as pool:
            runs = finished_runs(
                pool,
                EventCodec(),
                retention_days=settings.journal.retention_days,
                since=since,
                tenant=tenant,
                collection=collection,
            )
            async with aclosing(runs) as found:
                async for run in found:
                    maker.take(run)
    return maker


def moment(since: str, now: dt.datetime | None = None) -> dt.datetime | None:
    """Return the moment that an option names: a date or time of ISO 8601 (UTC where it names no zone), or 7d, 12h ago.

    None for "". Raises InvalidInput.
    """
    if not since:
        return None
    text = since.strip()
    try:
        if text[-1:] in {"d", "h"} and text[:-1].replace(".", "", 1).isdigit():
            ago = dt.timedelta(**{"days" if text[-1] == "d" else "hours": float(text[:-1])})
            return (now or dt.datetime.now(dt.UTC)) - ago
        found = dt.datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        message = f"{since!r} is no moment; write 2026-11-30, 2026-11-30T08:00Z, 7d or 12h"
        raise InvalidInput("since", message) from None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def write_labels(path: Path, labels: Sequence[Label]) -> None:
    """Write the labels as JSONL, at once, readable by the owner alone: they hold what people asked. Raises OSError."""
    lines = (json.dumps(one.as_json(), ensure_ascii=False, allow_nan=False) for one in labels)
    write_at_once(path, encodable("".join(f"{line}\n" for line in lines)), private=True)


def _show(report: dict[str, Any]) -> None:
    console = results()
    labels, verdicts = report["labels"], report["verdicts"]
    console.print(
        f"[bold]{labels['total']}[/bold] labels of {report['runs']} runs:"
        f" {labels['simple']} simple, {labels['complex']} complex"
    )
    console.print(
        f"routes: {verdicts['right']} right, {verdicts['over']} over, {verdicts['under']} under,"
        f" {verdicts['none']} without a verdict"
    )
    for title, counts in (("because", report["because"]), ("left out", report["left_out"])):
        if counts:
            told = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())
            console.print(f"{title}: {told}")
    for runs in report["conflicts"]["shown"]:
        console.print(f"[yellow]conflict[/yellow]  {escape(runs[0]['question'])}")
        for run in runs:
            signs = ", ".join(f"{sign['source']} -> {sign['needed']}" for sign in run["signs"])
            console.print(f"          [dim]{escape(run['request_id'])}: {escape(signs)}[/dim]")
    for warning in report["warnings"]:
        console.print(f"[yellow]{escape(warning)}[/yellow]")
    if report["out"]:
        console.print(f"written to {escape(report['out'])}; then: pointsman train {escape(report['out'])} --output DIR")
