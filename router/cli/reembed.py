"""`pointsman reembed`: change the embedder of a collection while it goes on answering."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pointsman.v1 import corpus_pb2
from rich.markup import escape
from rich.table import Table

from router.cli.connect import called
from router.cli.inputs import BadLine, json_lines, opened, sendable_text_of
from router.cli.options import Json, Key, Server
from router.cli.output import diagnostics, print_json, progress_bar, results
from router.grpc.jsonform import to_json
from standard.domain.errors import InvalidInput, PointsmanError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pointsman.client import Pointsman
    from rich.console import Console

Collection = Annotated[str, typer.Argument(metavar="COLLECTION", help="The collection.")]

_CALL_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 1.0
_STATES: Final[Mapping[int, str]] = {
    corpus_pb2.REEMBEDDING_STATE_BUILDING: "building",
    corpus_pb2.REEMBEDDING_STATE_PAUSED: "paused",
    corpus_pb2.REEMBEDDING_STATE_READY: "ready",
    corpus_pb2.REEMBEDDING_STATE_SWITCHED: "switched",
}
_NEXT: Final[Mapping[str, str]] = {
    "ready": "compare with `pointsman reembed compare {0}`, then `pointsman reembed switch {0}`",
    "switched": "`pointsman reembed rollback {0}` is the way back, until `pointsman reembed finish {0}`",
    "building": "it goes on in the background while a server runs; `pointsman reembed status {0} --wait` shows it",
    "paused": "once that is mended it goes on by itself within a minute, or at once with `pointsman reembed start`",
}


class ChangePaused(PointsmanError):
    """A change that was waited for does not go on."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    reembed = typer.Typer(
        name="reembed", help="Change the embedder of a collection while it answers.", no_args_is_help=True
    )
    reembed.command("start")(start)
    reembed.command("status")(status)
    reembed.command("compare")(compare)
    reembed.command("switch")(switch)
    reembed.command("rollback")(rollback)
    reembed.command("finish")(finish)
    reembed.command("cancel")(cancel)
    app.add_typer(reembed)


def start(
    collection: Collection,
    model: Annotated[
        str,
        typer.Option(
            help="NAME of a section \\[embedders.NAME], builtin, a sentence-transformers id or folder, or openai:NAME;"
            " default: the server's own \\[embedding]."
        ),
    ] = "",
    base_url: Annotated[str, typer.Option("--base-url", help="Endpoint of openai:NAME.")] = "",
    dimensions: Annotated[int, typer.Option(min=0, help="Length of an endpoint's vectors; 0: what it gives.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=0, help="Window of an endpoint's model; 0: as in \\[embedding].")] = 0,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Show how it goes until a switch is possible.")] = True,
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Embed a collection with another model beside its own, or go on with that at once."""
    request = corpus_pb2.StartReembeddingRequest(
        collection=collection, model=model, base_url=base_url, dimensions=dimensions, max_tokens=max_tokens
    )

    async def call(client: Pointsman) -> tuple[corpus_pb2.Reembedding, int]:
        started = await client.corpus.StartReembedding(request, timeout=_CALL_SECONDS, metadata=client.metadata)
        change, needed = started.reembedding, started.disk_bytes_needed
        if not json_output:
            diagnostics().print(
                escape(
                    f"{change.former.embedder_id} ({change.former.dimensions}) -> {change.new.embedder_id}"
                    f" ({change.new.dimensions}): about {size_of(needed)} more on the database's disk"
                )
            )
        return await _followed(client, collection) if wait else change, needed

    change, needed = called(call, server, key)
    _show(change, json_output=json_output, disk_bytes_needed=needed)
    return 0


def status(
    collection: Collection,
    wait: Annotated[bool, typer.Option("--wait", help="Show how it goes until a switch is possible.")] = False,
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Show how far a change is, and what was done so far."""

    async def call(client: Pointsman) -> corpus_pb2.GetReembeddingResponse:
        if wait:
            await _followed(client, collection)
        return await _get(client, collection)

    found = called(call, server, key)
    if json_output:
        print_json(change_view(found.reembedding) | {"changes": [_entry_view(each) for each in found.changes]})
        return 0
    _show(found.reembedding, json_output=False)
    table = Table("when", "what", "from", "to", "by")
    for each in found.changes:
        cells = (each.time.ToJsonString(), each.action, each.from_embedder_id, each.to_embedder_id, each.changed_by)
        table.add_row(*map(escape, cells))
    results().print(table)
    return 0


def compare(
    collection: Collection,
    file: Annotated[
        str,
        typer.Argument(metavar="[FILE]", help="JSONL with question and, where known, supporting_ids; - = stdin."),
    ] = "",
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=50, help="Documents that are compared.")] = 10,
    sample: Annotated[
        int, typer.Option(min=1, max=200, help="Sentences of the collection to search for, without FILE.")
    ] = 50,
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Search for the same questions with both embedders and say how far what they find agrees."""
    questions = _questions(file) if file else []
    request = corpus_pb2.CompareReembeddingRequest(
        collection=collection, questions=questions, top_k=top_k, sample=sample
    )

    async def call(client: Pointsman) -> corpus_pb2.CompareReembeddingResponse:
        return await client.corpus.CompareReembedding(request, timeout=_CALL_SECONDS, metadata=client.metadata)

    found = called(call, server, key)
    if json_output:
        print_json(to_json(found))
        return 0
    _show_comparison(results(), found, top_k)
    return 0


def _questions(file: str) -> list[corpus_pb2.CompareReembeddingRequest.Question]:
    asked = []
    with opened(file) as handle:
        for row in json_lines(handle):
            if isinstance(row, BadLine):
                raise InvalidInput("FILE", row.error)
            ids = row.get("supporting_ids", [])
            if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
                raise InvalidInput("FILE", f"{row['id']}: supporting_ids must be a list of texts")
            text = sendable_text_of(row, "question")
            asked.append(corpus_pb2.CompareReembeddingRequest.Question(text=text, supporting_ids=ids))
    if not asked:
        raise InvalidInput("FILE", "holds no question")
    return asked


def _show_comparison(console: Console, found: corpus_pb2.CompareReembeddingResponse, k: int) -> None:
    kind = "sentences of the collection" if found.sampled else "questions"
    console.print(f"{found.questions} {kind}: {found.overlap:.1%} of the first {k} documents are the same")
    if found.judged:
        console.print(
            f"of the documents that {found.judged} of them need, the former finds {found.former_recall:.1%},"
            f" the new one {found.new_recall:.1%}: more for {found.better}, fewer for {found.worse}"
        )
    console.print(
        f"median seconds of a search, its question's embedding included: {found.former_seconds:.3f} with the former,"
        f" {found.new_seconds:.3f} with the new one"
    )
    if found.differences:
        table = Table("least alike", "same", "former finds", "new one finds")
        for each in found.differences:
            row = (each.question, f"{each.overlap:.0%}", ", ".join(each.former_ids[:5]), ", ".join(each.new_ids[:5]))
            table.add_row(*map(escape, row))
        console.print(table)


def switch(collection: Collection, server: Server = None, key: Key = "", json_output: Json = False) -> int:
    """Let the new embedder answer, at once; the former's vectors are kept up to date."""
    return _change(collection, corpus_pb2.REEMBEDDING_ACTION_SWITCH, server, key, json_output=json_output)


def rollback(collection: Collection, server: Server = None, key: Key = "", json_output: Json = False) -> int:
    """Let the former embedder answer again, at once; the new vectors are kept up to date."""
    return _change(collection, corpus_pb2.REEMBEDDING_ACTION_ROLL_BACK, server, key, json_output=json_output)


def finish(collection: Collection, server: Server = None, key: Key = "", json_output: Json = False) -> int:
    """Drop the former vectors; there is no way back from here."""
    return _change(collection, corpus_pb2.REEMBEDDING_ACTION_FINISH, server, key, json_output=json_output, done="done")


def cancel(collection: Collection, server: Server = None, key: Key = "", json_output: Json = False) -> int:
    """Give the change up and drop the new vectors."""
    action = corpus_pb2.REEMBEDDING_ACTION_CANCEL
    return _change(collection, action, server, key, json_output=json_output, done="cancelled")


def _change(
    collection: str,
    action: corpus_pb2.ReembeddingAction.ValueType,
    server: str | None,
    key: str,
    *,
    json_output: bool,
    done: str = "",
) -> int:
    request = corpus_pb2.ChangeReembeddingRequest(collection=collection, action=action)

    async def call(client: Pointsman) -> corpus_pb2.Reembedding:
        answer = await client.corpus.ChangeReembedding(request, timeout=_CALL_SECONDS, metadata=client.metadata)
        return answer.reembedding

    change = called(call, server, key)
    if done and not json_output:
        kept = change.new if done == "done" else change.former
        results().print(escape(f"{done}: {change.collection} is embedded with {kept.embedder_id}"))
    else:
        _show(change, json_output=json_output, **({"state": done} if done else {}))
    return 0


async def _get(client: Pointsman, collection: str) -> corpus_pb2.GetReembeddingResponse:
    request = corpus_pb2.GetReembeddingRequest(collection=collection)
    return await client.corpus.GetReembedding(request, timeout=_CALL_SECONDS, metadata=client.metadata)


async def _followed(client: Pointsman, collection: str) -> corpus_pb2.Reembedding:
    """Show how a change goes until it is ready. Raises ChangePaused where it does not go on."""
    with progress_bar() as bar:
        task = bar.add_task("documents", total=None, rate="")
        while True:
            change = (await _get(client, collection)).reembedding
            if change.HasField("remaining"):
                rate = change.problem or f"{change.passages_per_second:.0f} passages/s"
                done = change.documents - change.remaining
                bar.update(task, total=change.documents, completed=done, rate=escape(rate))
            state = _STATES.get(change.state, "")
            if state in ("ready", "switched"):
                return change
            if state == "paused":
                raise ChangePaused(f"paused: {change.problem}; {_NEXT['paused']}")
            await asyncio.sleep(_POLL_SECONDS)


def change_view(change: corpus_pb2.Reembedding) -> dict[str, Any]:
    """A change as JSON values."""
    return {
        "collection": change.collection,
        "state": _STATES.get(change.state, ""),
        "former": _generation_view(change.former),
        "new": _generation_view(change.new),
        "documents": change.documents,
        "remaining": change.remaining if change.HasField("remaining") else None,
        "passages_per_second": change.passages_per_second,
        "problem": change.problem,
        "next_attempt": change.next_attempt_time.ToJsonString() if change.HasField("next_attempt_time") else None,
        "started_at": change.start_time.ToJsonString(),
        "started_by": change.started_by,
        "switched_at": change.switch_time.ToJsonString() if change.HasField("switch_time") else None,
    }


def _generation_view(side: corpus_pb2.EmbeddedGeneration) -> dict[str, Any]:
    return {
        "embedder": side.embedder_id,
        "dimensions": side.dimensions,
        "passages": side.passage_count,
        "disk_bytes": side.disk_bytes,
    }


def _entry_view(entry: corpus_pb2.ReembeddingEntry) -> dict[str, Any]:
    return {
        "action": entry.action,
        "from": entry.from_embedder_id,
        "to": entry.to_embedder_id,
        "at": entry.time.ToJsonString(),
        "by": entry.changed_by,
    }


def _show(change: corpus_pb2.Reembedding, *, json_output: bool, **more: Any) -> None:  # noqa: ANN401 - JSON values
    view = change_view(change) | more
    if json_output:
        print_json(view)
        return
    console = results()
    left = "" if view["remaining"] is None else f", {view['remaining']} of {view['documents']} documents to be embedded"
    console.print(escape(f"{view['collection']}: {view['state']}{left}"))
    for name in ("former", "new"):
        side = view[name]
        sizes = f"{side['dimensions']} dimensions, {side['passages']} passages, {size_of(side['disk_bytes'])}"
        console.print(escape(f"  {name}: {side['embedder']}, {sizes}"))
    if view["problem"]:
        console.print(f"[yellow]{escape(view['problem'])}[/yellow]")
    if advice := _NEXT.get(view["state"]):
        console.print(escape(advice.format(view["collection"])))


def size_of(count: int) -> str:
    """Bytes for people."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
