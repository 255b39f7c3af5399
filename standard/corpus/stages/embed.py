"""Second stage: embed chunks in batches; and once more where another generation answers by now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from standard.corpus.chunking import read_chunking
from standard.corpus.stages.prepare import items_of
from standard.corpus.stages.run import BATCH, Batch, Item, Judge, Run
from standard.embedding.protocol import PassageInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.corpus.chunking import Chunk
    from standard.corpus.collections import Collection
    from standard.corpus.document import SourceDocument
    from standard.embedding.protocol import Embedder


async def embed(
    collection: Collection,
    embedder: Embedder,
    run: Run,
    chunks: asyncio.Queue[Item | None],
    batches: asyncio.Queue[Batch | None],
) -> None:
    """Embed chunks in batches that end with a document where they can."""
    loop = asyncio.get_running_loop()
    batch: list[Item] = []
    ended = False
    while not ended:
        item = await chunks.get()
        ended = item is None
        if item is not None:
            batch.append(item)
        full = len(batch) >= BATCH and (batch[-1].last or len(batch) >= 2 * BATCH)
        if batch and (full or ended):
            began = loop.time()
            vectors = await embedder.embed_passages([passage_of(item.chunk) for item in batch])
            run.embedding_seconds += loop.time() - began
            await batches.put(Batch(collection, batch, vectors))
            batch = []
    await batches.put(None)


async def made_again(
    documents: Sequence[tuple[SourceDocument, str, bool]],
    collection: Collection,
    embedder: Embedder,
    judge: Judge,
    run: Run,
) -> list[Batch]:
    """Cut and embed documents for the generation that answers now; each with its hash and whether it replaces one."""
    clock = asyncio.get_running_loop().time
    chunking = read_chunking(collection.chunker)
    batches: list[Batch] = []
    for document, content_hash, replaces in documents:
        items = await items_of(document, content_hash, replaces, embedder, chunking, judge.scan)
        for first in range(0, len(items), BATCH):
            part = items[first : first + BATCH]
            began = clock()
            vectors = await embedder.embed_passages([passage_of(item.chunk) for item in part])
            run.embedding_seconds += clock() - began
            batches.append(Batch(collection, part, vectors))
    return batches


def passage_of(chunk: Chunk) -> PassageInput:
    """What of a chunk is embedded."""
    return PassageInput(chunk.embedded, chunk.embedded_sentences)
