"""`pointsman collection`: list, make and change collections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from pointsman.v1 import corpus_pb2
from rich.markup import escape
from rich.table import Table

from router.cli.connect import called
from router.cli.inputs import opened
from router.cli.options import Json, Key, Server
from router.cli.output import print_json, results
from router.grpc.jsonform import to_json
from standard.corpus.style import MAX_INSTRUCTIONS
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from pointsman.client import Pointsman

Name = Annotated[str, typer.Argument(metavar="NAME", help="The collection.")]
Language = Annotated[
    str | None,
    typer.Option(
        "--answer-language", metavar="TAG", help='de, pt-BR …: the language of answers; "" = the question\'s.'
    ),
]
Instructions = Annotated[
    str | None,
    typer.Option(
        "--answer-instructions", metavar="TEXT", help='What is asked of every answer; @FILE reads it, "" = nothing.'
    ),
]

_SECONDS = 60.0
_PAGE = 1000


def register(app: typer.Typer) -> None:
    """Add the commands."""
    collection = typer.Typer(
        name="collection", help="Collections, and how their answers are written.", no_args_is_help=True
    )
    collection.command("list")(list_)
    collection.command("show")(show)
    collection.command("create")(create)
    collection.command("update")(update)
    app.add_typer(collection)


def list_(server: Server = None, key: Key = "", json_output: Json = False) -> int:
    """List the collections by name."""

    async def call(client: Pointsman) -> list[corpus_pb2.Collection]:
        found: list[corpus_pb2.Collection] = []
        token = ""
        while True:
            request = corpus_pb2.ListCollectionsRequest(page_size=_PAGE, page_token=token)
            page = await client.corpus.ListCollections(request, timeout=_SECONDS, metadata=client.metadata)
            found += page.collections
            token = page.next_page_token
            if not token:
                return found

    listed = called(call, server, key)
    if json_output:
        for each in listed:
            print_json(to_json(each))
        return 0
    table = Table("name", "documents", "passages", "embedder", "language", "instructions")
    for each in listed:
        cells = (each.name, str(each.document_count), str(each.passage_count), each.embedder_id, each.answer_language)
        table.add_row(*map(escape, (*cells, " ".join(each.answer_instructions.split())[:60])))
    results().print(table)
    return 0


def show(name: Name, server: Server = None, key: Key = "", json_output: Json = False) -> int:
    """Show one collection."""

    async def call(client: Pointsman) -> corpus_pb2.Collection:
        request = corpus_pb2.GetCollectionRequest(name=name)
        return (await client.corpus.GetCollection(request, timeout=_SECONDS, metadata=client.metadata)).collection

    return _shown(called(call, server, key), json_output=json_output)


def create(
    name: Name,
    text_config: Annotated[
        str, typer.Option("--text-config", help="PostgreSQL's text search configuration: german, simple …")
    ] = "english",
    answer_language: Language = None,
    answer_instructions: Instructions = None,
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Make an empty collection."""
    request = corpus_pb2.CreateCollectionRequest(
        name=name,
        text_config=text_config,
        answer_language=answer_language or "",
        answer_instructions=_text(answer_instructions) or "",
    )

    async def call(client: Pointsman) -> corpus_pb2.Collection:
        return (await client.corpus.CreateCollection(request, timeout=_SECONDS, metadata=client.metadata)).collection

    return _shown(called(call, server, key), json_output=json_output)


def update(
    name: Name,
    answer_language: Language = None,
    answer_instructions: Instructions = None,
    server: Server = None,
    key: Key = "",
    json_output: Json = False,
) -> int:
    """Change how answers of a collection are written; what is not named stays."""
    if answer_language is None and answer_instructions is None:
        raise typer.BadParameter("name what changes: --answer-language or --answer-instructions")
    request = corpus_pb2.UpdateCollectionRequest(
        name=name, answer_language=answer_language, answer_instructions=_text(answer_instructions)
    )

    async def call(client: Pointsman) -> corpus_pb2.Collection:
        return (await client.corpus.UpdateCollection(request, timeout=_SECONDS, metadata=client.metadata)).collection

    return _shown(called(call, server, key), json_output=json_output)


def _text(given: str | None) -> str | None:
    """What an option says: itself, or the text of the file behind an @."""
    if given is None or not given.startswith("@"):
        return given
    with opened(given[1:]) as handle:
        raw = handle.read(4 * MAX_INSTRUCTIONS + 1)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidInput("answer_instructions", f"{given[1:]} is no UTF-8, or longer than is allowed") from None


def _shown(collection: corpus_pb2.Collection, *, json_output: bool) -> int:
    if json_output:
        print_json(to_json(collection))
        return 0
    console = results()
    sizes = f"{collection.document_count} documents, {collection.passage_count} passages"
    console.print(escape(f"{collection.name}: {sizes}, {collection.embedder_id}, {collection.text_config}"))
    console.print(escape(f"answers are written in {collection.answer_language or 'the language of the question'}"))
    if collection.answer_instructions:
        console.print(escape(f"instructions: {collection.answer_instructions}"))
    return 0
