"""What commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from router.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDTH = 132


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on one line of stdout."""
    sys.stdout.write(encodable(json.dumps(value, ensure_ascii=False, allow_nan=False)) + "\n")
    sys.stdout.flush()


def diagnostics() -> Console:
    """A console on stderr."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def results() -> Console:
    """A console on stdout, for people; wide enough for tables where stdout is no terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)


def progress_bar(console: Console | None = None) -> Progress:
    """A progress bar on stderr, silent where stderr is no terminal."""
    console = console or diagnostics()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
        transient=False,
    )
