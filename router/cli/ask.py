"""`pointsman ask`: a question, its steps as they happen, and the answer."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from pointsman.client import question as build_question
from pointsman.v1 import gateway_pb2
from rich.markup import escape

from router.cli.connect import connected, remote_errors
from router.cli.inputs import BadLine, is_file, json_lines, opened, sendable_text_of, stdin_holds_objects
from router.cli.options import Collection, Json, Key, Server
from router.cli.output import diagnostics, print_json, refuse, results
from router.grpc.jsonform import to_json
from router.settings import load_settings
from standard.domain.errors import InvalidInput, PointsmanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pointsman.client import Pointsman
    from rich.console import Console


class RouteChoice(StrEnum):
    """What --route takes."""

    AUTO = "auto"
    STANDARD = "standard"
    AGENTIC = "agentic"


_ROUTES = {
    RouteChoice.AUTO: gateway_pb2.ROUTE_UNSPECIFIED,
    RouteChoice.STANDARD: gateway_pb2.ROUTE_STANDARD,
    RouteChoice.AGENTIC: gateway_pb2.ROUTE_AGENTIC,
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ask")(ask)


def ask(
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION|FILE",
            help="The question, or a JSONL file of them; - reads either from standard input.",
        ),
    ] = "",
    file: Annotated[str, typer.Option("--file", help='Ask every line of a JSONL file: {"id", "question"}.')] = "",
    route: Annotated[RouteChoice, typer.Option(help="Force a route.")] = RouteChoice.AUTO,
    threshold: Annotated[float | None, typer.Option(help="Override the routing threshold, 0 to 1.")] = None,
    collection: Collection = "",
    top_k: Annotated[int, typer.Option(help="Passages of a single-shot answer, 1 to 100.")] = 0,
    max_steps: Annotated[int, typer.Option(help="Steps of the agentic route, 1 to 20.")] = 0,
    max_seconds: Annotated[float, typer.Option(help="Time limit in seconds.")] = 0.0,
    session_id: Annotated[str, typer.Option(help="Conversation the question belongs to.")] = "",
    request_id: Annotated[str, typer.Option(help="Unique id; the same id and question is answered once.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide only.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show steps.")] = False,
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Ask the gateway a question, or every question of a file: {"id", "question"} a line."""
    if bool(question) == bool(file):
        raise typer.BadParameter("give a QUESTION or a FILE")
    if not file and question.endswith(".jsonl") and not is_file(question):
        raise typer.BadParameter(f"there is no file {question}")
    if not file and (stdin_holds_objects() if question == "-" else is_file(question)):
        file, question = question, ""

    def build(text: str, name: str = "") -> gateway_pb2.AnswerRequest:
        return build_question(
            text,
            route=_ROUTES[route],
            collection=collection,
            threshold=threshold,
            top_k=top_k,
            budget=gateway_pb2.Budget(max_steps=max_steps, max_seconds=max_seconds),
            session_id=session_id,
            request_id=name,
            dry_run=dry_run,
        )

    async def run() -> int:
        async with connected(load_settings(), server, key) as client:
            if file:
                return await _ask_file(client, file, build, json_output=json_output)
            text = _stdin_text() if question == "-" else question
            steps = None if quiet else diagnostics()
            answer = await follow(client.stream(build(text, request_id)), steps)
            print_json(to_json(answer)) if json_output else show_answer(results(), answer)
            return 0

    return asyncio.run(run())


def _stdin_text() -> str:
    with opened("-") as handle:
        return handle.read(1_048_576).decode("utf-8", "replace").strip()


async def _ask_file(client: Pointsman, path: str, build: object, *, json_output: bool) -> int:
    assert callable(build)  # noqa: S101 - only `ask` calls this
    refused = 0
    with opened(path) as handle:
        for row in json_lines(handle):
            try:
                if isinstance(row, BadLine):
                    raise InvalidInput("line", row.error)
                async with remote_errors():
                    answer = await client.answer(build(sendable_text_of(row, "question")))
            except PointsmanError as error:
                refused += 1
                refuse(row, error, json_output=json_output)
                continue
            if json_output:
                print_json({"id": row["id"], **to_json(answer)})
            else:
                show_answer(results(), answer)
    return 1 if refused else 0


async def follow(events: AsyncIterator[gateway_pb2.Event], steps: Console | None) -> gateway_pb2.AnswerResponse:
    """Show the events of a run as they come and return the answer."""
    answer = gateway_pb2.AnswerResponse()
    async for event in events:
        kind = event.WhichOneof("body")
        if kind == "completed":
            answer = event.completed
        elif steps is not None and event.text and kind != "citation":
            steps.print(f"  [dim]{event.sequence:>3}  {escape(event.text)}[/dim]")
    return answer


def show_answer(console: Console, answer: gateway_pb2.AnswerResponse) -> None:
    """Print an answer for people."""
    view = to_json(answer)
    decision = view["decision"]
    probability = decision["complex_probability"]
    shown = "" if probability is None else f"  p={probability:.2f} (threshold {decision['threshold']:.2f})"
    console.print(f"[bold]{view['route']}[/bold] by {decision['reason']}{shown}")
    if answer.clarification:
        console.print(escape(answer.clarification))
    if answer.answer:
        console.print(escape(answer.answer))
    for number, citation in enumerate(answer.citations, start=1):
        quote = " ".join(citation.quote.split())
        console.print(f"  [dim]\\[{number}] {escape(citation.title or citation.document_id)}: “{escape(quote)}”[/dim]")
    for notice in answer.notices:
        console.print(f"  [yellow]{escape(notice)}[/yellow]")
    console.print(
        f"  [dim]{view['outcome']} ({view['stop_reason']}), {answer.steps} steps,"
        f" {answer.timings.total_seconds:.2f} s, request {answer.request_id}[/dim]"
    )
