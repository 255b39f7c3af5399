"""`pointsman classify`: how complex questions look, from their text alone or with a first look into a collection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pointsman.v1 import gateway_pb2
from rich.markup import escape

from router.cli.connect import connected, remote_errors
from router.cli.inputs import BadLine, json_lines, opened, sendable_text_of
from router.cli.options import Json, Key, Server
from router.cli.output import print_json, refuse, results
from router.grpc.jsonform import to_json
from router.routing.models import check_model
from router.settings import load_settings
from standard.domain.errors import InvalidInput, PointsmanError

if TYPE_CHECKING:
    from pointsman.client import Pointsman
    from rich.console import Console

LEAST_SHOWN, MOST_SHOWN = 0.02, 8
"""For people: smaller parts, and more of a group, are left to --json."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("classify")(classify)


def classify(
    path: Annotated[str, typer.Argument(metavar="FILE", help="JSONL of {id, question, history}; - reads stdin.")] = "",
    file: Annotated[str, typer.Option("--file", help="The same as FILE.")] = "",
    question: Annotated[str, typer.Option("--question", help="One question instead of a file.")] = "",
    threshold: Annotated[float | None, typer.Option(help="Override the routing threshold, 0 to 1.")] = None,
    model: Annotated[str, typer.Option(help="Folder of a trained routing model; always in process.")] = "",
    explain: Annotated[bool, typer.Option("--explain", help="Show what moved the probability.")] = False,
    collection: Annotated[str, typer.Option(help="Look into this collection as well; default: the text alone.")] = "",
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Say how complex questions look."""
    source = path or file
    if bool(source) == bool(question):
        raise typer.BadParameter("give a FILE, or --question TEXT")
    if model:
        if server:
            raise typer.BadParameter("--model is for work in process; the server of --server has a model of its own")
        check_model(Path(model))
    settings = load_settings(**({"routing": {"model": model}} if model else {}))

    async def one(client: Pointsman, row: dict[str, Any]) -> dict[str, Any]:
        request = gateway_pb2.ClassifyRequest(
            question=sendable_text_of(row, "question"),
            history=_history(row),
            threshold=threshold,
            explain=explain,
            collection=collection,
        )
        response = to_json(await client.gateway.Classify(request, timeout=60.0, metadata=client.metadata))
        decision = response["decision"]
        line = {
            "id": row["id"],
            "question": row["question"],
            "complex_probability": decision["complex_probability"],
            "route": decision["route"],
            "reason": decision["reason"],
            "model_version": decision["model_version"],
        }
        if collection:
            line |= {name: decision[name] for name in ("text_probability", "evidence_probability")}
        if explain:
            line |= {name: response[name] for name in ("average_log_odds", "contributions")}
        return line

    async def run() -> int:
        refused = 0
        async with connected(settings, server, key, in_process=bool(model)) as client:
            if question:
                _show(await one(client, {"id": "1", "question": question}), json_output=json_output)
                return 0
            with opened(source) as handle:
                for row in json_lines(handle):
                    try:
                        if isinstance(row, BadLine):
                            raise InvalidInput("line", row.error)
                        async with remote_errors():
                            line = await one(client, row)
                        _show(line, json_output=json_output)
                    except PointsmanError as error:
                        refused += 1
                        refuse(row, error, json_output=json_output)
        return 1 if refused else 0

    return asyncio.run(run())


def _history(row: dict[str, Any]) -> list[gateway_pb2.Turn]:
    turns = row.get("history") or []
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise InvalidInput("history", "must be a list of {role, text}")
    return [
        gateway_pb2.Turn(role=sendable_text_of(turn, "role"), text=sendable_text_of(turn, "text")) for turn in turns
    ]


def _show(line: dict[str, Any], *, json_output: bool) -> None:
    if json_output:
        print_json(line)
        return
    probability = line["complex_probability"]
    shown = "-" if probability is None else f"{probability:.3f}"
    console = results()
    console.print(f"{shown}  [bold]{line['route']}[/bold]  ({line['reason']})  {escape(line['question'])}")
    if "contributions" in line:
        _show_parts(console, line)


def _show_parts(console: Console, line: dict[str, Any]) -> None:
    """Groups by what they add together, each with its strongest features."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for part in line["contributions"]:
        groups.setdefault(part["group"], []).append(part)
    if line["average_log_odds"] is not None:
        console.print(f"       {line['average_log_odds']:+.2f}  an average question")
    sums = {name: sum(part["log_odds"] for part in parts) for name, parts in groups.items()}
    for name in sorted(groups, key=lambda name: -abs(sums[name])):
        console.print(f"       {sums[name]:+.2f}  [bold]{escape(name)}[/bold]")
        strong = [part for part in groups[name] if abs(part["log_odds"]) >= LEAST_SHOWN][:MOST_SHOWN]
        for part in strong:
            feature, about = escape(part["feature"].replace("_", " ")), escape(part["about"])
            console.print(f"              [dim]{part['log_odds']:+.2f}  {feature}: {about}[/dim]")
