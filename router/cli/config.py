"""`pointsman config`: the settings in force."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from router.cli.options import Json
from router.cli.output import print_json, results
from router.settings import config_path, example_toml, load_settings, masked


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("config")(config)


def config(
    example: Annotated[bool, typer.Option("--example", help="Print a commented pointsman.toml with defaults.")] = False,
    json_output: Json = False,
) -> int:
    """Show the settings in force, secrets masked."""
    if example:
        sys.stdout.write(example_toml())
        return 0
    settings = load_settings()
    values = masked(settings) | {"config": str(config_path()) if config_path() else None}
    if json_output:
        print_json(values)
        return 0
    console = results()
    for section, keys in values.items():
        if isinstance(keys, dict):
            console.print(f"[bold]\\[{section}][/bold]")
            for key, value in keys.items():
                console.print(f"  {key} = {value!r}", markup=False)
        else:
            console.print(f"{section} = {keys!r}", markup=False)
    return 0
