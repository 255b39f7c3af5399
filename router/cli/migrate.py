"""`pointsman migrate`: bring the database to this release's schema."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from router.cli.options import Json
from router.cli.output import print_json, results
from router.settings import load_settings

if TYPE_CHECKING:
    from standard.database.migrate import MigrationReport


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("migrate")(migrate)


def migrate(json_output: Json = False) -> int:
    """Apply migrations that are missing."""
    from router.configs import database_config
    from standard.database.migrate import migrate as migrate_database
    from standard.database.pool import database_url

    settings = load_settings()

    async def run() -> MigrationReport:
        async with database_url(database_config(settings)) as url:
            return await migrate_database(url, allow_old_pgvector=settings.database.accept_old_pgvector)

    report = asyncio.run(run())
    if json_output:
        print_json(asdict(report))
        return 0
    console = results()
    if report.applied:
        console.print(f"schema {report.from_version} -> {report.to_version}: {', '.join(report.applied)}")
    else:
        console.print(f"schema {report.to_version}: nothing to do")
    console.print(f"pgvector {report.pgvector}")
    for warning in report.warnings:
        console.print(f"[yellow]{warning}[/yellow]")
    return 0
