"""`pointsman train`: adapt the routing model to labels of one's own."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli.inputs import opened
from router.cli.options import Json
from router.cli.output import print_json, progress_bar, results

if TYPE_CHECKING:
    from collections.abc import Iterator


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train)


def train(
    output: Annotated[Path, typer.Option("--output", help="Folder for the adapted model.")],
    labels: Annotated[
        str, typer.Argument(metavar="LABELS", help="CSV or JSONL of {question, label}; - reads stdin.")
    ] = "",
    file: Annotated[str, typer.Option("--file", help="The same as LABELS.")] = "",
    model: Annotated[Path | None, typer.Option(help="Folder to start from; default: the shipped model.")] = None,
    json_output: Json = False,
) -> int:
    """Adapt the routing model to your labels; what is no better than before is said, and not taken."""
    from router.evaluation.classifier import train_from_labels

    source = labels or file
    if not source or (labels and file):
        raise typer.BadParameter("give a file of LABELS, or - for standard input")
    with _as_file(source) as path, progress_bar() as bars:
        task = bars.add_task("training", total=100, rate="")

        def show(share: float) -> None:
            bars.update(task, completed=round(100 * share))

        report = train_from_labels(path, output, base=model, progress=show)
    if json_output:
        print_json(report)
    else:
        results().print_json(data=report)
    return 1 if report["labels"]["refused"] else 0


@contextmanager
def _as_file(source: str) -> Iterator[Path]:
    """The labels as a file, which is read more than once; standard input is kept for as long."""
    if source != "-":
        yield Path(source)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        with opened("-") as handle, path.open("wb") as kept:
            shutil.copyfileobj(handle, kept)
        yield path
