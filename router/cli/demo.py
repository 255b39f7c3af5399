"""`pointsman demo`: the whole way on real input, shown.

Starts the embedded PostgreSQL and a gRPC server, ingests the demo corpus, asks the demo questions through the client
over TCP and shows what happens; then stops everything.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pointsman.client import Pointsman, question
from rich.markup import escape
from rich.table import Table

from router.cli.ask import follow, show_answer
from router.cli.connect import remote_errors
from router.cli.ingest import ingest_paths, show_report
from router.cli.options import Json
from router.cli.output import diagnostics, print_json, results
from router.grpc.jsonform import to_json
from router.settings import load_settings
from standard.domain.errors import NotFound

if TYPE_CHECKING:
    from pointsman.v1 import gateway_pb2
    from rich.console import Console

COLLECTION = "demo"


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """A question of the demo; `expect` is the outcome it should have, `expected_documents` what it should cite from."""

    id: str
    question: str
    kind: str
    expect: str
    expected_documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its answer; `seconds` as the client saw it."""

    question: DemoQuestion
    answer: gateway_pb2.AnswerResponse
    seconds: float

    @property
    def cited(self) -> int:
        """How many of the expected documents the answer cites."""
        found = {citation.document_id for citation in self.answer.citations}
        return len(found.intersection(self.question.expected_documents))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    folder: Annotated[Path | None, typer.Option(help="Another folder with corpus/ and demo_questions.jsonl.")] = None,
    json_output: Json = False,
) -> int:
    """Ingest the demo corpus and ask it questions over gRPC."""
    return asyncio.run(run_demo(folder or demo_folder(), json_output=json_output))


def demo_folder() -> Path:
    """Where the demo corpus lies: in the wheel beside this package, or in the checkout."""
    here = Path(__file__).resolve()
    for candidate in (here.parents[1] / "demo", here.parents[2] / "deploy" / "demo"):
        if (candidate / "demo_questions.jsonl").is_file():
            return candidate
    raise NotFound("the demo corpus is not installed; run `make demo` in a checkout, or name it with --folder")


def read_questions(folder: Path) -> list[DemoQuestion]:
    """The demo's questions, in order."""
    lines = (folder / "demo_questions.jsonl").read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
    return [
        DemoQuestion(row["id"], row["question"], row["kind"], row["expect"], tuple(row["expected_documents"]))
        for row in rows
    ]


async def run_demo(folder: Path, *, json_output: bool) -> int:
    """The demo; returns the exit code."""
    from router.application import open_application
    from router.process.serving import local_gate, open_grpc

    console = diagnostics() if json_output else results()
    settings = load_settings()
    began = time.perf_counter()
    console.print("[bold]1. Starting[/bold] the embedded PostgreSQL, the embedder and the gateway ...")
    async with AsyncExitStack() as stack:
        application = await stack.enter_async_context(open_application(settings))
        gate, key = local_gate(application)
        port = await stack.enter_async_context(open_grpc(application, port=0, gate=gate))
        console.print(f"   serving gRPC on 127.0.0.1:{port} after {time.perf_counter() - began:.1f} s")
        console.print(f"[bold]2. Ingesting[/bold] {escape(str(folder / 'corpus'))} into the collection {COLLECTION}")
        report = await ingest_paths(application, [str(folder / "corpus")], COLLECTION, prune=True, console=console)
        show_report(console, report)
        console.print("[bold]3. Asking[/bold] through the client, over TCP")
        asked: list[Asked] = []
        async with Pointsman(f"127.0.0.1:{port}", token=key) as client, remote_errors():
            for each in read_questions(folder):
                title = f"[bold cyan]{each.id}[/bold cyan] [bold]{escape(each.question)}[/bold]"
                console.print(f"\n{title} [dim]({each.kind})[/dim]")
                at = time.perf_counter()
                answer = await follow(client.stream(question(each.question, collection=COLLECTION)), console)
                asked.append(Asked(each, answer, time.perf_counter() - at))
                show_answer(console, answer)
        console.print()
        if json_output:
            print_json(summary(asked, time.perf_counter() - began))
        else:
            _show_summary(console, asked)
    console.print(f"[dim]everything is stopped; {time.perf_counter() - began:.1f} s in all[/dim]")
    return 0


def summary(asked: list[Asked], seconds: float) -> dict[str, Any]:
    """The demo's result as JSON values."""
    return {
        "seconds": round(seconds, 3),
        "questions": [
            {
                "id": each.question.id,
                "question": each.question.question,
                "kind": each.question.kind,
                "expected_outcome": each.question.expect,
                "expected_documents": list(each.question.expected_documents),
                "expected_documents_cited": each.cited,
                "seconds": round(each.seconds, 4),
                "answer": to_json(each.answer),
            }
            for each in asked
        ],
    }


def _show_summary(console: Console, asked: list[Asked]) -> None:
    table = Table(title="Summary", title_justify="left")
    for column in ("question", "kind", "route", "p", "steps", "outcome", "expected", "cited", "seconds"):
        table.add_column(column, justify="right" if column in {"p", "steps", "cited", "seconds"} else "left")
    for each in asked:
        view = to_json(each.answer)
        probability = view["decision"]["complex_probability"]
        outcome = view["outcome"]
        as_expected = outcome.startswith(each.question.expect)
        wanted = len(each.question.expected_documents)
        table.add_row(
            each.question.id,
            each.question.kind,
            view["route"],
            "-" if probability is None else f"{probability:.2f}",
            str(each.answer.steps),
            outcome if as_expected else f"[yellow]{outcome}[/yellow]",
            each.question.expect,
            f"{each.cited}/{wanted}" if wanted else "-",
            f"{each.seconds:.2f}",
        )
    console.print(table)
    right = sum(to_json(each.answer)["outcome"].startswith(each.question.expect) for each in asked)
    console.print(f"{right} of {len(asked)} outcomes as expected.")
    if not any(each.answer.usage.llm_calls for each in asked):
        console.print(
            "Without a language model answers are sentences of the documents; POINTSMAN_LLM__BASE_URL and"
            " POINTSMAN_LLM__MODEL bring one."
        )
