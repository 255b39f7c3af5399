"""`pointsman classify`: how complex questions look, from their text alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pointsman.v1 import gateway_pb2
from rich.markup import escape

from router.cli.connect import connected, remote_errors
from router.cli.inputs import BadLine, json_lines, opened, sendable_text_of
from router.cli.options import Json, Server
from router.cli.output import print_json, refuse, results
from router.grpc.jsonform import to_json
from router.settings import load_settings
from standard.domain.errors import InvalidInput, PointsmanError

if TYPE_CHECKING:
    from pointsman.client import Pointsman


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
    server: Server = None,
    json_output: Json = False,
) -> int:
    """Say how complex questions look."""
    source = path or file
    if bool(source) == bool(question):
        raise typer.BadParameter("give a FILE, or --question TEXT")
    settings = load_settings(**({"routing": {"model": model}} if model else {}))

    async def one(client: Pointsman, row: dict[str, Any]) -> dict[str, Any]:
        request = gateway_pb2.ClassifyRequest(
            question=sendable_text_of(row, "question"), history=_history(row), threshold=threshold, explain=explain
        )
        response = to_json(await client.gateway.Classify(request, timeout=60.0))
        decision = response["decision"]
        line = {
            "id": row["id"],
            "question": row["question"],
            "complex_probability": decision["complex_probability"],
            "route": decision["route"],
            "reason": decision["reason"],
            "model_version": decision["model_version"],
        }
        return line | ({"contributions": response["contributions"]} if explain else {})

    async def run() -> int:
        refused = 0
        async with connected(settings, server) as client:
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
    for part in line.get("contributions", []):
        console.print(f"       [dim]{part['log_odds']:+.3f}  {escape(part['feature'])}[/dim]")
