"""CorpusService: collections and documents of the caller's tenant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog
from google.protobuf import json_format, timestamp_pb2
from pointsman.v1 import corpus_pb2

from router.grpc.errors import abort
from router.grpc.reembed_calls import ReembeddingCalls
from router.grpc.validate import collection_name, question_text, to_filter, to_top_k
from router.tables import tables_on_page
from standard.corpus import collections, documents
from standard.corpus.document import SourceDocument
from standard.corpus.style import answer_style
from standard.domain.errors import AlreadyExists, DeadlineExceeded, InvalidInput, PointsmanError
from standard.domain.passage import Scope
from standard.screening import presentable
from standard.unicode import encodable as text

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    import numpy as np
    from numpy.typing import NDArray

    from router.access.identity import Identity
    from router.grpc.calls import Context
    from router.reembed import Reembeddings
    from router.settings import LimitSettings
    from standard.corpus.collections import Collection, EmbedderIdentity
    from standard.corpus.ingest import IngestReport
    from standard.database.pool import Pool
    from standard.domain.passage import RetrievedPassage, Retriever
    from standard.foreign.dispatch import ForeignTable, Tables
    from standard.foreign.view import TableView

_log = structlog.get_logger("pointsman.corpus")
_MAX_IDS = 1000
IDLE_SECONDS = 120.0
"""A client that sends nothing for so long is given up on: its stream holds the collection's lock."""


class Ingest(Protocol):
    """Takes documents into a collection."""

    async def __call__(
        self, tenant: str, collection: str, incoming: AsyncIterator[SourceDocument], *, prune: bool
    ) -> IngestReport:
        """Ingest until `incoming` ends."""
        ...


class CorpusService(ReembeddingCalls):
    """The edge of the corpus."""

    def __init__(
        self,
        pool: Pool,
        retriever: Retriever,
        embed: Callable[[str], Awaitable[NDArray[np.float32]]],
        embedder: EmbedderIdentity,
        ingest: Ingest,
        limits: LimitSettings,
        identify: Callable[[Context], Identity],
        tables: Tables,
        reembeddings: Reembeddings,
        place: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        super().__init__(reembeddings, limits, identify, tables)
        self._pool = pool
        self._retriever = retriever
        self._embed = embed
        self._embedder = embedder
        self._ingest = ingest
        self._limits = limits
        self._identify = identify
        self._tables = tables
        self._place = place

    def _writer(self, context: Context) -> Identity:
        identity = self._identify(context)
        identity.require("admin")
        return identity

    async def CreateCollection(  # noqa: N802 - the RPC's name
        self, request: corpus_pb2.CreateCollectionRequest, context: Context
    ) -> corpus_pb2.CreateCollectionResponse:
        """Make a collection."""
        try:
            tenant = self._writer(context).tenant
            if self._tables.of(tenant, request.name):
                raise AlreadyExists(f"there is a table of yours that is called {request.name!r}")
            made = await collections.create_collection(
                self._pool,
                tenant,
                request.name,
                embedder=self._embedder,
                text_config=request.text_config or "english",
                style=answer_style(request.answer_instructions, request.answer_language),
            )
            return corpus_pb2.CreateCollectionResponse(collection=collection_message(made))
        except Exception as error:  # noqa: BLE001 - the edge: every error is mapped once
            await abort(context, error)

    async def ListCollections(  # noqa: N802
        self, request: corpus_pb2.ListCollectionsRequest, context: Context
    ) -> corpus_pb2.ListCollectionsResponse:
        """List collections."""
        try:
            identity = self._identify(context)
            page = await collections.list_collections(
                self._pool,
                identity.tenant,
                page_size=request.page_size,
                page_token=request.page_token,
            )
            own = {each.name: each for each in page.collections}
            names, token = tables_on_page(
                self._tables, identity.tenant, request.page_size, request.page_token, list(own), page.next_page_token
            )
            listed = []
            for name in filter(identity.sees, names):
                table = self._tables.of(identity.tenant, name)
                listed.append(collection_message(own[name]) if table is None else await listed_table(table))
            return corpus_pb2.ListCollectionsResponse(collections=listed, next_page_token=token)
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def GetCollection(  # noqa: N802
        self, request: corpus_pb2.GetCollectionRequest, context: Context
    ) -> corpus_pb2.GetCollectionResponse:
        """One collection."""
        try:
            identity = self._identify(context)
            name = identity.admitted(collection_name(request.name))
            table = self._tables.of(identity.tenant, name)
            if table is not None:
                message = table_message(table, await table.retriever.view(identity.tenant))
                return corpus_pb2.GetCollectionResponse(collection=message)
            found = await collections.get_collection(self._pool, identity.tenant, name)
            return corpus_pb2.GetCollectionResponse(collection=collection_message(found))
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def UpdateCollection(  # noqa: N802
        self, request: corpus_pb2.UpdateCollectionRequest, context: Context
    ) -> corpus_pb2.UpdateCollectionResponse:
        """Change how answers of a collection are written."""
        try:
            if not request.name:
                raise InvalidInput("name", "is missing")
            identity = self._writer(context)
            name = identity.admitted(collection_name(request.name))
            self._tables.refuse(identity.tenant, name, "update (set it in its section of the settings)")
            now = (await collections.get_collection(self._pool, identity.tenant, name)).style
            style = answer_style(
                request.answer_instructions if request.HasField("answer_instructions") else now.instructions,
                request.answer_language if request.HasField("answer_language") else now.language,
            )
            changed = await collections.set_style(self._pool, identity.tenant, name, style)
            _log.info("answers of a collection are written another way", collection=name, by=identity.name)
            return corpus_pb2.UpdateCollectionResponse(collection=collection_message(changed))
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def DeleteCollection(  # noqa: N802
        self, request: corpus_pb2.DeleteCollectionRequest, context: Context
    ) -> corpus_pb2.DeleteCollectionResponse:
        """Delete a collection."""
        try:
            if not request.name:
                raise InvalidInput("name", "is missing")
            identity = self._writer(context)
            self._tables.refuse(identity.tenant, collection_name(request.name), "delete")
            await collections.delete_collection(self._pool, identity.tenant, collection_name(request.name))
            return corpus_pb2.DeleteCollectionResponse()
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def IngestDocuments(  # noqa: N802
        self, request_iterator: AsyncIterator[corpus_pb2.IngestDocumentsRequest], context: Context
    ) -> corpus_pb2.IngestDocumentsResponse:
        """Take documents in."""
        try:
            identity = self._writer(context)
            requests = aiter(request_iterator)
            async with asyncio.timeout(IDLE_SECONDS):
                first = await anext(requests, None)
            if first is None or first.WhichOneof("content") != "header":
                raise InvalidInput("header", "the first message must be the header")
            report = await self._ingest(
                identity.tenant,
                collection_name(first.header.collection),
                incoming(requests),
                prune=first.header.prune,
            )
            return ingest_message(report)
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def ListDocuments(  # noqa: N802
        self, request: corpus_pb2.ListDocumentsRequest, context: Context
    ) -> corpus_pb2.ListDocumentsResponse:
        """List documents without their text."""
        try:
            identity = self._identify(context)
            self._tables.refuse(
                identity.tenant, identity.admitted(collection_name(request.collection)), "list documents"
            )
            page = await documents.list_documents(
                self._pool,
                identity.tenant,
                identity.admitted(collection_name(request.collection)),
                groups=visible_groups(identity),
                page_size=request.page_size,
                page_token=request.page_token,
            )
            return corpus_pb2.ListDocumentsResponse(
                documents=[document_message(each) for each in page.documents], next_page_token=page.next_page_token
            )
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def GetDocument(  # noqa: N802
        self, request: corpus_pb2.GetDocumentRequest, context: Context
    ) -> corpus_pb2.GetDocumentResponse:
        """One document with its text."""
        try:
            identity = self._identify(context)
            self._tables.refuse(
                identity.tenant, identity.admitted(collection_name(request.collection)), "get a document"
            )
            found = await documents.get_document(
                self._pool,
                identity.tenant,
                identity.admitted(collection_name(request.collection)),
                document_id(request.id, "id"),
                groups=visible_groups(identity),
            )
            return corpus_pb2.GetDocumentResponse(document=document_message(found))
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def DeleteDocuments(  # noqa: N802
        self, request: corpus_pb2.DeleteDocumentsRequest, context: Context
    ) -> corpus_pb2.DeleteDocumentsResponse:
        """Delete documents."""
        try:
            if not 1 <= len(request.ids) <= _MAX_IDS:
                raise InvalidInput("ids", f"must hold 1 to {_MAX_IDS} ids")
            ids = [document_id(each, f"ids[{index}]") for index, each in enumerate(request.ids)]
            identity = self._writer(context)
            self._tables.refuse(
                identity.tenant, identity.admitted(collection_name(request.collection)), "delete documents"
            )
            deleted = await documents.delete_documents(
                self._pool,
                identity.tenant,
                identity.admitted(collection_name(request.collection)),
                ids,
                groups=visible_groups(identity),
            )
            return corpus_pb2.DeleteDocumentsResponse(deleted=deleted)
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def SearchPassages(  # noqa: N802
        self, request: corpus_pb2.SearchPassagesRequest, context: Context
    ) -> corpus_pb2.SearchPassagesResponse:
        """Search without answering; a search holds a place among the questions that are worked on at once."""
        try:
            identity = self._identify(context)
            query = question_text(request.query, "query", self._limits)
            scope = Scope(
                tenant=identity.tenant,
                collection=identity.admitted(collection_name(request.collection)),
                filter=to_filter(request.filter) if request.HasField("filter") else None,
                groups=identity.groups,
            )
            k = to_top_k(request.top_k)
            async with self._place():
                result = await self._retriever.search(scope, query.raw, await self._embed(query.raw), k=k)
            shown = presentable(result.passages)
            return corpus_pb2.SearchPassagesResponse(passages=[passage_message(each) for each in shown])
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)


def visible_groups(identity: Identity) -> frozenset[str] | None:
    """The groups whose documents a caller may see; None = all, for administrators."""
    return None if "admin" in identity.roles else identity.groups


def document_id(value: str, field: str) -> str:
    """A document's id: 1 to 512 characters without NUL."""
    if not 1 <= len(value) <= 512 or "\x00" in value:
        raise InvalidInput(field, "must have 1 to 512 characters and no NUL")
    return value


async def incoming(
    requests: AsyncIterator[corpus_pb2.IngestDocumentsRequest], idle_seconds: float = IDLE_SECONDS
) -> AsyncIterator[SourceDocument]:
    """The documents of an ingest stream; their numbers in it, from 1, as lines.

    Raises InvalidInput for a message that is no document, DeadlineExceeded where none comes for `idle_seconds`.
    """
    number = 0
    while True:
        try:
            async with asyncio.timeout(idle_seconds):
                request = await anext(requests, None)
        except TimeoutError:
            raise DeadlineExceeded(f"nothing was sent for {idle_seconds:g} s; send the rest again") from None
        if request is None:
            return
        if request.WhichOneof("content") != "document":
            raise InvalidInput("content", "every message after the first must be a document")
        number += 1
        document = request.document
        metadata: Mapping[str, object] = json_format.MessageToDict(document.metadata)
        yield SourceDocument(
            document_id=document.id,
            title=document.title,
            text=document.text,
            uri=document.uri,
            metadata=metadata,
            groups=tuple(document.access_groups),
            source="stream",
            line=number,
        )


def collection_message(collection: Collection) -> corpus_pb2.Collection:
    """A collection on the wire."""
    return corpus_pb2.Collection(
        name=collection.name,
        embedder_id=collection.embedder.id,
        dimensions=collection.embedder.dimensions,
        text_config=collection.text_config,
        document_count=collection.document_count,
        passage_count=collection.passage_count,
        create_time=_timestamp(collection.created_at),
        answer_instructions=text(collection.style.instructions),
        answer_language=collection.style.language,
    )


def table_message(table: ForeignTable, view: TableView | None) -> corpus_pb2.Collection:
    """A table of one's own on the wire: rows are its passages; of documents and of its making nothing is known."""
    retriever = table.retriever
    return corpus_pb2.Collection(
        name=retriever.mapping.name,
        embedder_id=retriever.embedder.id,
        dimensions=retriever.embedder.dimensions,
        text_config=view.lexical.config if view is not None and view.lexical is not None else "",
        passage_count=0 if view is None else view.corpus_size,
        answer_instructions=text(table.style.instructions),
        answer_language=table.style.language,
    )


async def listed_table(table: ForeignTable) -> corpus_pb2.Collection:
    """A table in a list; one that cannot be used now is listed as empty."""
    try:
        return table_message(table, await table.retriever.view())
    except PointsmanError:
        return table_message(table, None)


def document_message(document: documents.StoredDocument) -> corpus_pb2.Document:
    """A document on the wire."""
    message = corpus_pb2.Document(
        id=text(document.document_id),
        title=text(document.title),
        text=text(document.text or ""),
        uri=text(document.uri),
        access_groups=document.groups,
    )
    json_format.ParseDict(dict(document.metadata), message.metadata)
    return message


def passage_message(found: RetrievedPassage) -> corpus_pb2.Passage:
    """A passage and its scores on the wire."""
    passage = found.passage
    message = corpus_pb2.Passage(
        passage_id=passage.passage_id,
        document_id=passage.document_id,
        title=text(passage.title.raw),
        uri=text(passage.uri),
        text=text(passage.text.raw),
        score=found.score,
        dense_score=found.dense_score,
        lexical_score=found.lexical_score,
    )
    json_format.ParseDict(dict(passage.metadata), message.metadata)
    return message


def ingest_message(report: IngestReport) -> corpus_pb2.IngestDocumentsResponse:
    """An ingest's report on the wire."""
    return corpus_pb2.IngestDocumentsResponse(
        added=report.added,
        replaced=report.replaced,
        unchanged=report.unchanged,
        pruned=report.pruned,
        passages=report.passages,
        rejected=[
            corpus_pb2.IngestDocumentsResponse.Rejected(
                number=each.line, id=text(each.document_id), reason=text(each.reason)
            )
            for each in report.rejected
        ],
        seconds=report.seconds,
        rescanned=report.rescanned,
    )


def _timestamp(moment: dt.datetime) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp
