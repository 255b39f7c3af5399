"""`pointsman scan`: what the injection scan says of documents, before they go in."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from router.cli.inputs import BadLine, json_lines, opened, text_of
from router.cli.options import Json
from router.cli.output import print_json, refuse, results
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from standard.sandbox.scan import ScanReport


class Level(StrEnum):
    """Verdicts, mildest first."""

    PASS = "pass"  # noqa: S105 - a verdict
    FLAG = "flag"
    NEUTRALISE = "neutralise"
    QUARANTINE = "quarantine"


_ORDER = list(Level)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("scan")(scan)


def scan(
    path: Annotated[str, typer.Argument(metavar="FILE", help="JSONL of {id, title, text}; - reads stdin.")] = "",
    file: Annotated[str, typer.Option("--file", help="The same as FILE.")] = "",
    fail_on: Annotated[Level | None, typer.Option("--fail-on", help="Exit 1 at this verdict or a worse one.")] = None,
    json_output: Json = False,
) -> int:
    """Scan documents for text that addresses the model. Findings are results: exit 0 unless --fail-on."""
    from standard.sandbox.scan import scan_document

    source = path or file
    if not source:
        raise typer.BadParameter("give a FILE, or - for standard input")
    refused = False
    worst = 0
    with opened(source) as handle:
        for row in json_lines(handle):
            try:
                if isinstance(row, BadLine):
                    raise InvalidInput("line", row.error)
                title = row.get("title", "")
                report = scan_document(row["id"], title if isinstance(title, str) else "", text_of(row, "text"))
            except InvalidInput as error:
                refused = True
                refuse(row, error, json_output=json_output)
                continue
            worst = max(worst, _ORDER.index(Level(report.verdict)))
            _show(report, json_output=json_output)
    failed = fail_on is not None and worst >= _ORDER.index(fail_on)
    return 1 if refused or failed else 0


def _show(report: ScanReport, *, json_output: bool) -> None:
    if json_output:
        print_json(
            {
                "id": report.id,
                "verdict": report.verdict,
                "techniques": list(report.techniques),
                "reason": report.reason,
                "rules_version": report.rules_version,
                "canonical": report.canonical.encode("utf-8", "replace").decode(),
            }
        )
        return
    colour = {"pass": "green", "flag": "yellow", "neutralise": "yellow", "quarantine": "red"}[report.verdict]
    techniques = f"  {', '.join(report.techniques)}" if report.techniques else ""
    line = f"[{colour}]{report.verdict:>10}[/{colour}]  {escape(report.id)}{escape(techniques)}"
    results().print(line + (f"  [dim]{escape(report.reason)}[/dim]" if report.reason else ""))
