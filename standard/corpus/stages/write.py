"""Last stage: write batches, so that a document is there with all of its chunks or as it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standard.corpus.stages.run import Batch, Batches, Run
from standard.corpus.write import (
    ChunkRow,
    Counts,
    add_counts,
    generations_of,
    hold_active,
    put_chunks,
    put_documents,
    remove_chunks,
)
from standard.database.pool import limit_statements, transaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from standard.corpus.collections import Collection
    from standard.corpus.document import SourceDocument
    from standard.database.pool import Pool

_WRITE_SECONDS = 120.0  # bound of each writing statement


async def write(
    pool: Pool,
    collection: Collection,
    run: Run,
    batches: Batches,
    report_progress: Callable[[], None],
    made_again: Callable[[Sequence[tuple[SourceDocument, str, bool]]], Awaitable[list[Batch]]],
) -> None:
    """Write batches; a transaction goes on to the next batch while a document is not complete."""
    received = await batches.get()
    while received is not None:
        if not await _write_documents(pool, collection.collection_id, received, run, batches):
            # another generation answers now: these documents were cut and embedded for the one before
            documents = []
            batch: Batch | None = received
            while batch is not None:
                documents += [(*item.document, item.replaces) for item in batch.items if item.document is not None]
                if batch.items[-1].last:
                    break
                batch = await batches.get()
            batches.put_first(await made_again(documents))
        report_progress()
        received = await batches.get()


async def _write_documents(pool: Pool, collection_id: int, batch: Batch, run: Run, batches: Batches) -> bool:
    """Write a batch, and those that its last document goes on in, in one transaction.

    Returns False, and writes nothing, where it is for another generation than the one that answers.
    """
    collection = batch.collection
    received: Batch | None = batch
    added = replaced = passages = 0
    async with transaction(pool) as conn:
        await limit_statements(conn, _WRITE_SECONDS)
        active = await hold_active(conn, collection_id)
        if active != collection.generation_id:
            return False
        changes = {active: Counts()}
        keys: dict[str, int] = {}
        while received is not None:
            items, vectors = received.items, received.vectors
            begun = [item for item in items if item.document is not None]
            keys |= await put_documents(
                conn, collection.collection_id, [item.document for item in begun if item.document is not None]
            )
            old = [keys[item.document_id] for item in begun if item.replaces]
            if old:
                for generation in await generations_of(conn, collection_id):
                    removed = await remove_chunks(conn, generation, old)
                    changes[generation] = changes.get(generation, Counts()) + -removed
            rows = [
                ChunkRow(keys[item.document_id], item.chunk, item.verdict, vector, sentences)
                for item, vector, sentences in zip(items, vectors.vectors, vectors.sentence_vectors, strict=True)
            ]
            changes[active] += await put_chunks(conn, active, collection.text_config, rows)
            replaced += len(old)
            added += len(begun) - len(old)
            passages += len(rows)
            if items[-1].last:
                break
            received = await batches.get()
        for generation, change in sorted(changes.items()):
            await add_counts(conn, generation, change)
    run.added += added
    run.replaced += replaced
    run.passages += passages
    run.generation = collection.generation_id
    return True
