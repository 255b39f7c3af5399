"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout: one object, or one a line for lists.")]
Server = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="The gateway to ask; default: the one on this data directory, else in process."
    ),
]
Key = Annotated[
    str,
    typer.Option(
        "--key", metavar="KEY", envvar="POINTSMAN_API_KEY", show_envvar=True, help="The API key, where one is needed."
    ),
]
Collection = Annotated[str, typer.Option(help="The collection.")]
