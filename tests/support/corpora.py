"""Small collections for tests: documents from plain values, ingested the way production does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standard.corpus.collections import Collection, EmbedderIdentity, ensure_collection
from standard.corpus.document import Rejection, SourceDocument
from standard.corpus.ingest import IngestOptions, IngestReport, ingest
from standard.corpus.scan import Scan, pass_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder


async def stream(items: Iterable[SourceDocument | Rejection]) -> AsyncIterator[SourceDocument | Rejection]:
    """Yield the items as a source for `ingest`."""
    for item in items:
        yield item


def identity(embedder: Embedder) -> EmbedderIdentity:
    """Return what a collection remembers of an embedder."""
    return EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions)


async def fill(
    pool: Pool,
    embedder: Embedder,
    documents: Iterable[SourceDocument | Rejection],
    *,
    tenant: str = "default",
    collection: str = "default",
    text_config: str = "english",
    prune: bool = False,
    scan: Scan = pass_all,
) -> IngestReport:
    """Make the collection where it is missing and ingest the documents into it."""
    await ensure_collection(pool, tenant, collection, embedder=identity(embedder), text_config=text_config)
    return await ingest(
        pool, tenant, collection, stream(documents), embedder, options=IngestOptions(prune=prune), scan=scan
    )


async def collection_of(pool: Pool, name: str = "default", tenant: str = "default") -> Collection:
    """Return a collection of the default tenant."""
    from standard.corpus.collections import get_collection

    return await get_collection(pool, tenant, name)
