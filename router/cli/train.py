"""`pointsman train`: adapt the routing model to labels of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli.options import Json
from router.cli.output import print_json, progress_bar, results


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train)


def train(
    labels: Annotated[Path, typer.Argument(metavar="LABELS", help="CSV or JSONL of {question, label}.")],
    output: Annotated[Path, typer.Option("--output", help="Folder for the adapted model.")],
    model: Annotated[Path | None, typer.Option(help="Folder to start from; default: the shipped model.")] = None,
    json_output: Json = False,
) -> int:
    """Adapt the routing model to your labels; what is no better than before is said, and not taken."""
    from router.evaluation.classifier import train_from_labels

    with progress_bar() as bars:
        task = bars.add_task("training", total=100, rate="")

        def show(share: float) -> None:
            bars.update(task, completed=round(100 * share))

        report = train_from_labels(labels, output, base=model, progress=show)
    if json_output:
        print_json(report)
    else:
        results().print_json(data=report)
    return 0
