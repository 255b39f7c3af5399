"""Put documents into a collection: read, cut, embed and write at the same time, in bounded memory.

    reader -> [queue] -> prepare (check, compare hashes, cut, scan) -> [queue] -> embed -> [queue] -> write

The embedder is the slow part; the queues keep it busy. A transaction ends where documents end, so a document is there
with all of its chunks or as it was before. Whatever interrupts a run, the next one finds the finished documents by
their content hash and goes on with the rest.

Documents go into the generation that answers. Where another one takes its place meanwhile (a change of embedder), what
was cut and embedded for the former is cut and embedded again before it is written, so that a run that was told to be
done is in what answers. Other generations lose what is replaced; whoever keeps them up to date fills it in.

Of two documents with one id in a run the first wins; the second is reported. One run a collection at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from standard.corpus.collections import Collection, EmbedderIdentity, check_embedder, get_collection
from standard.corpus.index import index_if_large
from standard.corpus.lock import collection_lock
from standard.corpus.scan import Scan, pass_all
from standard.corpus.stages.embed import embed, made_again, passage_of
from standard.corpus.stages.prepare import Source, cut_document, prepare
from standard.corpus.stages.run import (
    BATCH,
    MAX_REPORTED_REJECTIONS,
    Batch,
    Batches,
    IngestOptions,
    Item,
    Judge,
    Run,
    digest_of,
)
from standard.corpus.stages.write import write
from standard.corpus.write import remove_documents
from standard.database.pool import transaction
from standard.embedding.protocol import Embedder
from standard.tasks import task_group

if TYPE_CHECKING:
    from standard.corpus.document import Rejection, SourceDocument
    from standard.database.pool import Pool

__all__ = [
    "MAX_REPORTED_REJECTIONS",
    "EmbedderOf",
    "IngestOptions",
    "IngestProgress",
    "IngestReport",
    "Source",
    "cut_document",
    "ingest",
    "passage_of",
]

EmbedderOf: TypeAlias = Callable[[Collection], Awaitable[Embedder]]
"""Returns the embedder that a collection was made with; raises FailedPrecondition, EmbedderUnavailable."""

_QUEUED = 4 * BATCH  # chunks that may wait for the embedder
_PRUNED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far a run is: documents done (with the unchanged), passages written, and passages a second so far."""

    documents: int
    passages: int
    passages_per_second: float
    rejected: int


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What a run did, in documents. `rejected` lists the first 1,000 of `rejected_count`.

    `prune_skipped` says why pruning was left out, "" if it was not asked for or done. `embedder_share` (0-1) is the
    part of `seconds` in which the embedder was at work. `rescanned` counts passages of unchanged documents that were
    judged again, because the rules of the scan have changed since.
    """

    added: int
    replaced: int
    unchanged: int
    pruned: int
    rejected: tuple[Rejection, ...]
    rejected_count: int
    passages: int
    seconds: float
    embedder_share: float
    indexed: bool
    prune_skipped: str = ""
    rescanned: int = 0

    @property
    def passages_per_second(self) -> float:
        """Passages written, by the time of the whole run."""
        return self.passages / self.seconds if self.seconds > 0 else 0.0


async def ingest(
    pool: Pool,
    tenant: str,
    collection_name: str,
    source: Source,
    embedder: Embedder,
    *,
    options: IngestOptions | None = None,
    scan: Scan = pass_all,
    scan_version: str = "",
    progress: Callable[[IngestProgress], None] | None = None,
    embedder_of: EmbedderOf | None = None,
) -> IngestReport:
    """Ingest all of `source` into a collection and return what happened.

    With `embedder_of` the collection's embedder is asked for there, first and whenever it changes; `embedder` is not
    used then. Documents that cannot be stored are reported and the rest goes in. `scan` judges every new chunk, and
    those of unchanged documents whose verdicts are of another version than `scan_version` ("" = leave them). Raises
    NotFound for an unknown collection, FailedPrecondition where it has another embedder, Overloaded where another run
    of it lasts longer than `options.wait_seconds`, DatabaseUnavailable, EmbedderUnavailable.
    """
    settings = options or IngestOptions()
    collection = await get_collection(pool, tenant, collection_name)
    embedder = await _embedder(collection, embedder, embedder_of)
    loop = asyncio.get_running_loop()
    async with collection_lock(pool, collection.collection_id, wait_seconds=settings.wait_seconds):
        began = loop.time()
        run = Run()
        judge = Judge(scan, scan_version)

        def report_progress() -> None:
            if progress is not None:
                done = run.added + run.replaced + run.unchanged
                seconds = max(loop.time() - began, 1e-9)
                progress(IngestProgress(done, run.passages, run.passages / seconds, run.rejected_count))

        chunks: asyncio.Queue[Item | None] = asyncio.Queue(_QUEUED)
        batches = Batches()

        async def again(documents: Sequence[tuple[SourceDocument, str, bool]]) -> list[Batch]:
            now = await get_collection(pool, tenant, collection_name)
            return await made_again(documents, now, await _embedder(now, embedder, embedder_of), judge, run)

        async with task_group() as group:
            group.create_task(prepare(pool, collection, source, embedder, settings, judge, run, chunks))
            group.create_task(embed(collection, embedder, run, chunks, batches.embedded))
            group.create_task(write(pool, collection, run, batches, report_progress, again))
        pruned, skipped = await _prune(pool, collection, run) if settings.prune else (0, "")
        indexed = await index_if_large(pool, run.generation or collection.generation_id, changed=run.passages)
        seconds = loop.time() - began
    report_progress()
    return IngestReport(
        added=run.added,
        replaced=run.replaced,
        unchanged=run.unchanged,
        pruned=pruned,
        rejected=tuple(run.rejected),
        rejected_count=run.rejected_count,
        passages=run.passages,
        seconds=seconds,
        embedder_share=run.embedding_seconds / seconds if seconds > 0 else 0.0,
        indexed=indexed,
        prune_skipped=skipped,
        rescanned=run.rescanned,
    )


async def _embedder(collection: Collection, embedder: Embedder, embedder_of: EmbedderOf | None) -> Embedder:
    """The collection's embedder: what `embedder_of` says, else `embedder`, which must then be it."""
    if embedder_of is not None:
        embedder = await embedder_of(collection)
    check_embedder(collection, EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions))
    return embedder


async def _prune(pool: Pool, collection: Collection, run: Run) -> tuple[int, str]:
    """Delete the documents that this run did not bring; not where it could not read all it was given."""
    if run.unnamed_rejections:
        return 0, f"{run.unnamed_rejections} inputs could not be read, so it is not known which documents are gone"
    if not run.seen:
        return 0, "the input brought no documents; delete the collection if it is meant to be empty"
    pruned = 0
    after = ""
    while True:
        async with transaction(pool) as conn:
            cursor = await conn.execute(
                "select document_key, document_id from document where collection_id = %s and document_id > %s"
                " order by document_id limit %s for update",
                [collection.collection_id, after, _PRUNED_AT_ONCE],
            )
            rows = await cursor.fetchall()
            gone = [key for key, document_id in rows if digest_of(document_id) not in run.seen]
            await remove_documents(conn, collection.collection_id, gone)
        pruned += len(gone)
        if not rows:
            return pruned, ""
        after = rows[-1][1]
