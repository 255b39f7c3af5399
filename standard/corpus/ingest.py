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
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from standard.corpus.chunking import Chunk, chunk_document, read_chunking
from standard.corpus.collections import Collection, EmbedderIdentity, check_embedder, get_collection
from standard.corpus.document import MAX_DOCUMENT_BYTES, Rejection, SourceDocument, refusal
from standard.corpus.index import index_if_large
from standard.corpus.lock import collection_lock
from standard.corpus.rescan import rescan
from standard.corpus.scan import Scan, ScanVerdict, pass_all
from standard.corpus.write import (
    ChunkRow,
    Counts,
    add_counts,
    generations_of,
    hold_active,
    put_chunks,
    put_documents,
    remove_chunks,
    remove_documents,
)
from standard.database.pool import connection, limit_statements, transaction
from standard.embedding.protocol import Embedder, PassageInput, PassageVectors

if TYPE_CHECKING:
    from standard.corpus.chunking import Chunking
    from standard.database.pool import Pool

Source: TypeAlias = AsyncIterator[SourceDocument | Rejection]
EmbedderOf: TypeAlias = Callable[[Collection], Awaitable[Embedder]]
"""Returns the embedder that a collection was made with; raises FailedPrecondition, EmbedderUnavailable."""

MAX_REPORTED_REJECTIONS = 1000
_LOOKUP = 64  # documents whose hashes are compared in one statement
_GATHER_SECONDS = 0.25
_BATCH = 64  # chunks embedded and written together, more or less
_QUEUED = 4 * _BATCH  # chunks that may wait for the embedder
_WRITE_SECONDS = 120.0  # bound of each writing statement
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


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """`prune`: delete documents of the collection that this run did not bring. `max_bytes`: the largest text, in UTF-8.

    `wait_seconds`: how long to wait for another run of the same collection.
    """

    prune: bool = False
    max_bytes: int = MAX_DOCUMENT_BYTES
    wait_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class _Judge:
    """The scan, and the version that its verdicts are stored under."""

    scan: Scan
    version: str


@dataclass(frozen=True, slots=True)
class _Known:
    """A document that is there already. `stale`: some verdict of it is of another version."""

    key: int
    content_hash: str
    stale: bool


@dataclass(slots=True)
class _Item:
    """A chunk on its way. `document` is set on a document's first chunk, `last` on its last."""

    document_id: str
    chunk: Chunk
    verdict: ScanVerdict
    document: tuple[SourceDocument, str] | None
    replaces: bool
    last: bool


@dataclass(frozen=True, slots=True)
class _Batch:
    """Chunks with their vectors, as the generation of `collection` needs them."""

    collection: Collection
    items: list[_Item]
    vectors: PassageVectors


class _Batches:
    """What waits to be written: first what was made again for another generation, then what the embedder brings."""

    def __init__(self) -> None:
        self.embedded: asyncio.Queue[_Batch | None] = asyncio.Queue(2)
        self._again: deque[_Batch] = deque()

    async def get(self) -> _Batch | None:
        return self._again.popleft() if self._again else await self.embedded.get()

    def put_first(self, batches: Sequence[_Batch]) -> None:
        self._again.extendleft(reversed(batches))


@dataclass(slots=True)
class _Run:
    """The state of a run, of one event loop. `generation` is the one that was written to last, 0 for none."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    passages: int = 0
    rejected: list[Rejection] = field(default_factory=list)
    rejected_count: int = 0
    unnamed_rejections: int = 0
    seen: set[bytes] = field(default_factory=set)
    embedding_seconds: float = 0.0
    rescanned: int = 0
    generation: int = 0

    def reject(self, rejection: Rejection) -> None:
        self.rejected_count += 1
        if len(self.rejected) < MAX_REPORTED_REJECTIONS:
            self.rejected.append(rejection)
        if rejection.document_id:
            self.seen.add(_digest(rejection.document_id))  # it exists somewhere: pruning must not take it
        else:
            self.unnamed_rejections += 1


def _digest(document_id: str) -> bytes:
    return hashlib.blake2b(document_id.encode("utf-8", "replace"), digest_size=16).digest()


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
        run = _Run()
        judge = _Judge(scan, scan_version)

        def report_progress() -> None:
            if progress is not None:
                done = run.added + run.replaced + run.unchanged
                seconds = max(loop.time() - began, 1e-9)
                progress(IngestProgress(done, run.passages, run.passages / seconds, run.rejected_count))

        chunks: asyncio.Queue[_Item | None] = asyncio.Queue(_QUEUED)
        batches = _Batches()

        async def made_again(documents: Sequence[tuple[SourceDocument, str, bool]]) -> list[_Batch]:
            now = await get_collection(pool, tenant, collection_name)
            return await _made_again(documents, now, await _embedder(now, embedder, embedder_of), judge, run)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_prepare(pool, collection, source, embedder, settings, judge, run, chunks))
                group.create_task(_embed(collection, embedder, run, chunks, batches.embedded))
                group.create_task(_write(pool, collection, run, batches, report_progress, made_again))
        except ExceptionGroup as problems:
            raise problems.exceptions[0] from None
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


async def _prepare(
    pool: Pool,
    collection: Collection,
    source: Source,
    embedder: Embedder,
    settings: IngestOptions,
    judge: _Judge,
    run: _Run,
    chunks: asyncio.Queue[_Item | None],
) -> None:
    """Check what comes, leave out what is there already, cut the rest."""
    chunking = read_chunking(collection.chunker)
    async with aclosing(_gathered(source, run, settings)) as groups:
        async for documents in groups:
            ids = [document.document_id for document in documents]
            known = await _known_documents(pool, collection, ids, judge.version)
            stale: list[int] = []
            for document in documents:
                content_hash = document.content_hash()
                before = known.get(document.document_id)
                if before is not None and before.content_hash == content_hash:
                    run.unchanged += 1
                    if before.stale:
                        stale.append(before.key)
                    continue
                replaces = before is not None
                for item in await _items(document, content_hash, replaces, embedder, chunking, judge.scan):
                    await chunks.put(item)
            if stale:
                again = await rescan(pool, collection, judge.scan, judge.version, document_keys=stale)
                run.rescanned += again.passages
    await chunks.put(None)


async def _gathered(source: Source, run: _Run, settings: IngestOptions) -> AsyncGenerator[list[SourceDocument]]:
    """Yield good documents in groups: what comes in a quarter of a second, up to a bound of number and of text."""
    clock = asyncio.get_running_loop().time
    group: list[SourceDocument] = []
    size = 0
    until = clock() + _GATHER_SECONDS
    try:
        async for item in source:
            if (document := _accepted(item, run, settings)) is None:
                continue
            group.append(document)
            size += len(document.text)
            if len(group) == _LOOKUP or size >= 1_000_000 or clock() >= until:
                yield group
                group, size = [], 0
                until = clock() + _GATHER_SECONDS
        if group:
            yield group
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()


def _accepted(item: SourceDocument | Rejection, run: _Run, settings: IngestOptions) -> SourceDocument | None:
    """Return a document that can go in, and note that its id has come; report anything else and return None."""
    if isinstance(item, Rejection):
        run.reject(item)
        return None
    digest = _digest(item.document_id)
    reason = refusal(item, max_bytes=settings.max_bytes)
    if reason is None and digest in run.seen:
        reason = f"the id {item.document_id!r} came before in this run; the first one counts"
    if reason is not None:
        run.reject(Rejection(item.source, item.line, reason, item.document_id))
        return None
    run.seen.add(digest)
    return item


async def _items(
    document: SourceDocument, content_hash: str, replaces: bool, embedder: Embedder, chunking: Chunking, scan: Scan
) -> list[_Item]:
    cut = await asyncio.to_thread(cut_document, document, embedder, chunking, scan)
    return [
        _Item(
            document_id=document.document_id,
            chunk=chunk,
            verdict=verdict,
            document=(document, content_hash) if index == 0 else None,
            replaces=replaces,
            last=index == len(cut) - 1,
        )
        for index, (chunk, verdict) in enumerate(cut)
    ]


def cut_document(
    document: SourceDocument, embedder: Embedder, chunking: Chunking, scan: Scan
) -> list[tuple[Chunk, ScanVerdict]]:
    """Cut a document for an embedder and judge each chunk; for a worker thread."""
    cut = chunk_document(
        document.title,
        document.text,
        count_tokens=embedder.count_tokens,
        max_tokens=embedder.max_tokens,
        chunking=chunking,
    )
    return [(chunk, scan(document.title, chunk.text)) for chunk in cut]


async def _known_documents(
    pool: Pool, collection: Collection, ids: Sequence[str], scan_version: str
) -> dict[str, _Known]:
    async with connection(pool) as conn:
        cursor = await conn.execute(
            """
            select d.document_id, d.document_key, d.content_hash, %(version)s <> '' and exists (
                select from chunk c
                where c.generation_id = %(generation)s and c.document_key = d.document_key
                  and c.scan ->> 'rules_version' is distinct from %(version)s
            )
            from document d where d.collection_id = %(collection)s and d.document_id = any(%(ids)s)
            """,
            {
                "version": scan_version,
                "generation": collection.generation_id,
                "collection": collection.collection_id,
                "ids": list(ids),
            },
        )
        return {row[0]: _Known(*row[1:]) for row in await cursor.fetchall()}


async def _embed(
    collection: Collection,
    embedder: Embedder,
    run: _Run,
    chunks: asyncio.Queue[_Item | None],
    batches: asyncio.Queue[_Batch | None],
) -> None:
    """Embed chunks in batches that end with a document where they can."""
    loop = asyncio.get_running_loop()
    batch: list[_Item] = []
    ended = False
    while not ended:
        item = await chunks.get()
        ended = item is None
        if item is not None:
            batch.append(item)
        full = len(batch) >= _BATCH and (batch[-1].last or len(batch) >= 2 * _BATCH)
        if batch and (full or ended):
            began = loop.time()
            vectors = await embedder.embed_passages([passage_of(item.chunk) for item in batch])
            run.embedding_seconds += loop.time() - began
            await batches.put(_Batch(collection, batch, vectors))
            batch = []
    await batches.put(None)


async def _made_again(
    documents: Sequence[tuple[SourceDocument, str, bool]],
    collection: Collection,
    embedder: Embedder,
    judge: _Judge,
    run: _Run,
) -> list[_Batch]:
    """Cut and embed documents for the generation that answers now; each with its hash and whether it replaces one."""
    clock = asyncio.get_running_loop().time
    chunking = read_chunking(collection.chunker)
    batches: list[_Batch] = []
    for document, content_hash, replaces in documents:
        items = await _items(document, content_hash, replaces, embedder, chunking, judge.scan)
        for first in range(0, len(items), _BATCH):
            part = items[first : first + _BATCH]
            began = clock()
            vectors = await embedder.embed_passages([passage_of(item.chunk) for item in part])
            run.embedding_seconds += clock() - began
            batches.append(_Batch(collection, part, vectors))
    return batches


def passage_of(chunk: Chunk) -> PassageInput:
    """What of a chunk is embedded."""
    return PassageInput(chunk.embedded, chunk.embedded_sentences)


async def _write(
    pool: Pool,
    collection: Collection,
    run: _Run,
    batches: _Batches,
    report_progress: Callable[[], None],
    made_again: Callable[[Sequence[tuple[SourceDocument, str, bool]]], Awaitable[list[_Batch]]],
) -> None:
    """Write batches; a transaction goes on to the next batch while a document is not complete."""
    received = await batches.get()
    while received is not None:
        if not await _write_documents(pool, collection.collection_id, received, run, batches):
            # another generation answers now: these documents were cut and embedded for the one before
            documents = []
            batch: _Batch | None = received
            while batch is not None:
                documents += [(*item.document, item.replaces) for item in batch.items if item.document is not None]
                if batch.items[-1].last:
                    break
                batch = await batches.get()
            batches.put_first(await made_again(documents))
        report_progress()
        received = await batches.get()


async def _write_documents(pool: Pool, collection_id: int, batch: _Batch, run: _Run, batches: _Batches) -> bool:
    """Write a batch, and those that its last document goes on in, in one transaction.

    Returns False, and writes nothing, where it is for another generation than the one that answers.
    """
    collection = batch.collection
    received: _Batch | None = batch
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


async def _prune(pool: Pool, collection: Collection, run: _Run) -> tuple[int, str]:
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
            gone = [key for key, document_id in rows if _digest(document_id) not in run.seen]
            await remove_documents(conn, collection.collection_id, gone)
        pruned += len(gone)
        if not rows:
            return pruned, ""
        after = rows[-1][1]
