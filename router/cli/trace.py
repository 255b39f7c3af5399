"""`pointsman trace`: everything that is kept about a run."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Annotated

import typer
from pointsman.v1 import admin_pb2
from rich.markup import escape

from router.cli.connect import called
from router.cli.options import Json, Key, Server
from router.cli.output import print_json, results
from router.grpc.jsonform import to_json

if TYPE_CHECKING:
    from pointsman.client import Pointsman


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("trace")(trace)


def trace(
    request_id: Annotated[str, typer.Argument(metavar="ID", help="The request id of the run.")],
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Show a run's trace."""

    async def call(client: Pointsman) -> admin_pb2.GetTraceResponse:
        request = admin_pb2.GetTraceRequest(request_id=request_id)
        return await client.admin.GetTrace(request, timeout=30.0, metadata=client.metadata)

    response = called(call, server, key)
    if json_output:
        print_json(to_json(response))
        return 0
    console = results()
    console.print(f"[bold]{escape(response.request_id)}[/bold] {response.state}")
    if response.trace_ids:
        console.print(f"      [dim]trace {escape(', '.join(response.trace_ids))}[/dim]")
    for entry in response.entries:
        at = dt.datetime.fromtimestamp(entry.at, dt.UTC).isoformat(timespec="milliseconds")
        view = to_json(entry)["body"]
        line = view.pop("text", "")
        console.print(f"{entry.sequence:>4}  {at}  [bold]{escape(entry.kind)}[/bold]  {escape(line)}")
        if entry.kind not in {"token", "completed"}:
            console.print(f"      [dim]{escape(json.dumps(view, ensure_ascii=False))}[/dim]")
    return 0
