"""`pointsman scan`: what the injection scan says of documents before they go in, and of a collection that is there."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from router.cli.inputs import BadLine, json_lines, opened, text_of
from router.cli.options import Json
from router.cli.output import diagnostics, print_json, progress_bar, refuse, results
from router.settings import load_settings
from standard.domain.errors import InvalidInput
from standard.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from standard.corpus.collections import Collection
    from standard.corpus.rescan import RescanReport
    from standard.database.pool import Pool
    from standard.sandbox.scan import ScanReport


class Level(StrEnum):
    """Verdicts, mildest first."""

    PASS = "pass"  # noqa: S105 - a verdict
    FLAG = "flag"
    NEUTRALISE = "neutralise"
    QUARANTINE = "quarantine"


_ORDER = list(Level)


class PolicyName(StrEnum):
    """What is done about findings in a collection; default = as the settings say."""

    STANDARD = "standard"
    STRICT = "strict"
    AUDIT = "audit"
    DEFAULT = "default"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("scan")(scan)


def scan(
    path: Annotated[str, typer.Argument(metavar="FILE", help="JSONL of {id, title, text}; - reads stdin.")] = "",
    file: Annotated[str, typer.Option("--file", help="The same as FILE.")] = "",
    fail_on: Annotated[Level | None, typer.Option("--fail-on", help="Exit 1 at this verdict or a worse one.")] = None,
    collection: Annotated[str, typer.Option(help="Count the verdicts of this collection, instead of a FILE.")] = "",
    rescan: Annotated[
        bool, typer.Option("--rescan", help="First judge anew what other rules, or another policy, have judged.")
    ] = False,
    policy: Annotated[
        PolicyName | None, typer.Option(help="First give the collection this policy, and judge it anew.")
    ] = None,
    json_output: Json = False,
) -> int:
    """Scan documents for text that addresses the model. Findings are results: exit 0 unless --fail-on."""
    source = path or file
    if collection:
        if source:
            raise typer.BadParameter("give a FILE or a --collection, not both")
        return _scan_collection(collection, policy, fail_on, rescan=rescan or policy is not None, as_json=json_output)
    if not source or rescan or policy is not None:
        raise typer.BadParameter("give a FILE, or - for standard input; --rescan and --policy go with --collection")
    return _scan_file(source, fail_on, json_output=json_output)


def _scan_file(source: str, fail_on: Level | None, *, json_output: bool) -> int:
    from standard.corpus.readers.jsonl import LINE_BYTES
    from standard.sandbox.scan import scan_document

    refused = False
    worst = 0
    with opened(source) as handle:
        for row in json_lines(handle, most=LINE_BYTES):
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
                "canonical": encodable(report.canonical),
            }
        )
        return
    colour = {"pass": "green", "flag": "yellow", "neutralise": "yellow", "quarantine": "red"}[report.verdict]
    techniques = f"  {', '.join(report.techniques)}" if report.techniques else ""
    line = f"[{colour}]{report.verdict:>10}[/{colour}]  {escape(report.id)}{escape(techniques)}"
    results().print(line + (f"  [dim]{escape(report.reason)}[/dim]" if report.reason else ""))


def _scan_collection(
    name: str, policy: PolicyName | None, fail_on: Level | None, *, rescan: bool, as_json: bool
) -> int:
    """Count a collection's verdicts; needs the database alone, also while a server runs on it."""
    from router.configs import database_config
    from standard.corpus.collections import get_collection, set_scan_policy
    from standard.corpus.rescan import count_verdicts
    from standard.database.pool import open_pool

    settings = load_settings()

    async def run() -> tuple[Collection, RescanReport | None, Mapping[str, int]]:
        async with open_pool(database_config(settings)) as pool:
            if policy is not None:
                stored = "" if policy is PolicyName.DEFAULT else policy.value
                found = await set_scan_policy(pool, "default", name, stored)
            else:
                found = await get_collection(pool, "default", name)
            report = await _rescan(pool, found) if rescan else None
            return found, report, await count_verdicts(pool, found)

    found, report, counts = asyncio.run(run())
    worst = max((_ORDER.index(Level(verdict)) for verdict, count in counts.items() if count), default=0)
    view = {level.value: counts.get(level.value, 0) for level in Level}
    in_force = found.scan_policy or settings.sandbox.policy
    if as_json:
        again = {"rescanned": report.passages, "changed": report.changed} if report is not None else {}
        print_json({"collection": name, "policy": in_force, "verdicts": view, **again})
    else:
        if report is not None:
            results().print(f"{report.passages} passages judged anew, {report.changed} verdicts changed")
        said = ", ".join(f"{count} {verdict}" for verdict, count in view.items())
        results().print(f"{escape(name)} (policy {in_force}): {said}")
    return 1 if fail_on is not None and worst >= _ORDER.index(fail_on) else 0


async def _rescan(pool: Pool, collection: Collection) -> RescanReport:
    from router.configs import scan_of
    from standard.corpus.rescan import rescan

    scan, version = scan_of(collection, load_settings())
    with progress_bar(diagnostics()) as bar:
        task = bar.add_task("passages", total=collection.passage_count, rate="")

        def show(report: RescanReport) -> None:
            bar.update(task, completed=report.passages)

        return await rescan(pool, collection, scan, version, progress=show)
