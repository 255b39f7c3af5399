"""The stream of an ingest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pointsman.v1 import corpus_pb2

from router.grpc.corpus_service import incoming
from standard.domain.errors import DeadlineExceeded, InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DOCUMENT = corpus_pb2.IngestDocumentsRequest(document=corpus_pb2.Document(id="a", text="text"))
HEADER = corpus_pb2.IngestDocumentsRequest(header=corpus_pb2.IngestDocumentsRequest.Header())


async def sent(
    *requests: corpus_pb2.IngestDocumentsRequest, then_silent: bool = False
) -> AsyncIterator[corpus_pb2.IngestDocumentsRequest]:
    for request in requests:
        yield request
    if then_silent:
        await asyncio.Event().wait()


async def test_documents_are_numbered_from_one() -> None:
    assert [(each.document_id, each.line) async for each in incoming(sent(DOCUMENT, DOCUMENT))] == [("a", 1), ("a", 2)]


async def test_a_second_header_is_refused() -> None:
    with pytest.raises(InvalidInput):
        [each async for each in incoming(sent(DOCUMENT, HEADER))]


async def test_a_client_that_falls_silent_is_given_up_on() -> None:
    documents = incoming(sent(DOCUMENT, then_silent=True), idle_seconds=0.05)
    assert (await anext(documents)).document_id == "a"
    with pytest.raises(DeadlineExceeded):
        await anext(documents)
