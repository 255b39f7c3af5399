"""Ingest: documents and chunks a second, and where the time goes.

The documents of the demo (Markdown, HTML, DOCX, PDF) under new ids, as often as it takes. First reading, cutting (with
the injection scan) and embedding, each by itself; then the whole, in which they overlap; then the whole with vectors at
hand, which tells what writing takes.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from router.bench.embedders import LikeTheReal
from router.bench.figure import Figure, Figures, Report
from router.configs import scan_of
from standard.corpus.chunking import read_chunking
from standard.corpus.collections import EmbedderIdentity, delete_collection, ensure_collection
from standard.corpus.document import SourceDocument
from standard.corpus.ingest import cut_document, ingest, passage_of
from standard.corpus.sources import read_sources
from standard.domain.errors import InvalidInput
from standard.embedding.protocol import PassageVectors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from router.application import Application
    from standard.embedding.protocol import PassageInput

_COLLECTION: Final = "bench-ingest"
_BATCH: Final = 64


@dataclass(frozen=True, slots=True)
class _KeptVectors(LikeTheReal):
    """The real embedder, but the vectors of passages are at hand."""

    kept: dict[PassageInput, tuple[NDArray[np.float32], NDArray[np.float32]]] = field(default_factory=dict)

    async def embed_passages(self, passages: Sequence[PassageInput]) -> PassageVectors:
        """Those at hand."""
        import numpy as np

        found = [self.kept[passage] for passage in passages]
        return PassageVectors(np.stack([vector for vector, _ in found]), tuple(sentences for _, sentences in found))

    async def keep(self, passages: Sequence[PassageInput]) -> None:
        """Embed passages and keep their vectors."""
        for first in range(0, len(passages), _BATCH):
            batch = passages[first : first + _BATCH]
            vectors = await self.real.embed_passages(batch)
            self.kept.update(zip(batch, zip(vectors.vectors, vectors.sentence_vectors, strict=True), strict=True))


async def ingest_figures(application: Application, corpus: Path, documents: int, report: Report) -> Figures:
    """Ingest `documents` documents made of those in the folder `corpus`. Raises InvalidInput where there are none."""
    report(f"ingesting {documents} documents")
    began = time.perf_counter()
    found = await asyncio.to_thread(_read, corpus)
    reading = time.perf_counter() - began
    if not found:
        raise InvalidInput("corpus", f"there is no document in {corpus}")
    reading *= documents / len(found)
    copies = [
        replace(found[number % len(found)], document_id=f"{found[number % len(found)].document_id}-{number}")
        for number in range(documents)
    ]
    pool, embedder = application.pool, application.embedder
    identity = EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions)
    collection = await ensure_collection(pool, "default", _COLLECTION, embedder=identity)
    try:
        scan, version = scan_of(collection, application.settings)
        chunking = read_chunking(collection.chunker)
        began = time.perf_counter()
        cut = [
            passage_of(chunk)
            for document in copies
            for chunk, _ in await asyncio.to_thread(cut_document, document, embedder, chunking, scan)
        ]
        cutting = time.perf_counter() - began
        kept = _KeptVectors(embedder)
        began = time.perf_counter()
        await kept.keep(cut)
        embedding = time.perf_counter() - began
        whole = await application.ingest("default", _COLLECTION, _each(copies), prune=False)
        await delete_collection(pool, "default", _COLLECTION)
        await ensure_collection(pool, "default", _COLLECTION, embedder=identity)
        rest = await ingest(pool, "default", _COLLECTION, _each(copies), kept, scan=scan, scan_version=version)
    finally:
        await delete_collection(pool, "default", _COLLECTION)
    chunks = whole.passages
    corpus_is = f"{documents} documents of the demo, {chunks} chunks"

    def each(seconds: float) -> float:
        return seconds / chunks * 1e3

    return {
        "ingest_documents_per_second": Figure(documents / whole.seconds, "1/s", corpus_is),
        "ingest_chunks_per_second": Figure(whole.passages_per_second, "1/s", corpus_is),
        "ingest_embedder_share": Figure(whole.embedder_share, "", "part of the time in which the embedder was at work"),
        "ingest_read_ms": Figure(each(reading), "ms", "reading the files, a chunk, by itself"),
        "ingest_cut_ms": Figure(each(cutting), "ms", "cutting and the injection scan, a chunk, by itself"),
        "ingest_embed_ms": Figure(each(embedding), "ms", "embedding a chunk and its sentences, by itself"),
        "ingest_write_ms": Figure(
            max(each(rest.seconds - cutting), 0.0),
            "ms",
            "writing a chunk: ingest with vectors at hand, less cutting, with which it overlaps",
        ),
    }


def _read(corpus: Path) -> list[SourceDocument]:
    return [item for item in read_sources([str(corpus)]) if isinstance(item, SourceDocument)]


async def _each(documents: Sequence[SourceDocument]) -> AsyncIterator[SourceDocument]:
    for document in documents:
        yield document
