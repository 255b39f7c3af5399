"""`pointsman doctor`: what works, what does not, and the way out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from router.cli.options import Json
from router.cli.output import print_json, results
from router.settings import load_settings

if TYPE_CHECKING:
    from router.doctor.finding import Finding

Database = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        help="Look for tables with embeddings in this database instead, and propose how to search them.",
        envvar="POINTSMAN_DOCTOR_DATABASE",
        show_envvar=True,
    ),
]

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(database: Database = "", json_output: Json = False) -> int:
    """Inspect the installation, or the tables of a database; exit 1 where something does not work."""
    from router.doctor.checks import examine
    from router.doctor.tables import examine_database

    settings = load_settings()
    findings = asyncio.run(examine_database(settings, database) if database else examine(settings))
    failed = any(finding.status == "failed" for finding in findings)
    if json_output:
        print_json({"ok": not failed, "findings": [_view(finding) for finding in findings]})
    else:
        console = results()
        for finding in findings:
            colour = _COLOURS[finding.status]
            status = f"[{colour}]{finding.status:>7}[/{colour}]"
            console.print(f"{status}  [bold]{finding.part}[/bold]  {escape(finding.found)}")
            if finding.advice:
                console.print(f"         {escape(finding.advice)}")
    return 1 if failed else 0


def _view(finding: Finding) -> dict[str, object]:
    return {
        "part": finding.part,
        "status": finding.status,
        "found": finding.found,
        "advice": finding.advice,
        "facts": dict(finding.facts),
    }
