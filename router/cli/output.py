"""What commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from router.cli.inputs import BadLine
from standard.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from standard.domain.errors import PointsmanError

_WIDTH = 132


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on one line of stdout."""
    sys.stdout.write(encodable(json.dumps(value, ensure_ascii=False, allow_nan=False)) + "\n")
    sys.stdout.flush()


def refuse(row: Mapping[str, Any] | BadLine, error: PointsmanError, *, json_output: bool) -> None:
    """Say what is wrong with a row of an input file: as JSON in its place on stdout, else on stderr."""
    name = row.id if isinstance(row, BadLine) else row["id"]
    if json_output:
        print_json({"id": name, "error": error.message})
    else:
        diagnostics().print(escape(f"{name}: {error.message}"))


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


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Progress bars on stderr, one a thing that is done: (what, done, total)."""
    with progress_bar() as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, rate="")
            bars.update(tasks[what], completed=done, total=total)

        yield show
