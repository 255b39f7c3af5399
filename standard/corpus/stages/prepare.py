"""First stage: check what comes, leave out what is there already, cut the rest and judge every chunk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeAlias

from standard.corpus.chunking import Chunk, chunk_document, read_chunking
from standard.corpus.document import Rejection, SourceDocument, refusal
from standard.corpus.rescan import rescan
from standard.corpus.stages.run import IngestOptions, Item, Judge, Known, Run, digest_of
from standard.database.pool import connection

if TYPE_CHECKING:
    from standard.corpus.chunking import Chunking
    from standard.corpus.collections import Collection
    from standard.corpus.scan import Scan, ScanVerdict
    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder

Source: TypeAlias = AsyncIterator[SourceDocument | Rejection]

_LOOKUP = 64  # documents whose hashes are compared in one statement
_GATHER_SECONDS = 0.25


async def prepare(
    pool: Pool,
    collection: Collection,
    source: Source,
    embedder: Embedder,
    settings: IngestOptions,
    judge: Judge,
    run: Run,
    chunks: asyncio.Queue[Item | None],
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
                for item in await items_of(document, content_hash, replaces, embedder, chunking, judge.scan):
                    await chunks.put(item)
            if stale:
                again = await rescan(pool, collection, judge.scan, judge.version, document_keys=stale)
                run.rescanned += again.passages
    await chunks.put(None)


async def _gathered(source: Source, run: Run, settings: IngestOptions) -> AsyncGenerator[list[SourceDocument]]:
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


def _accepted(item: SourceDocument | Rejection, run: Run, settings: IngestOptions) -> SourceDocument | None:
    """Return a document that can go in, and note that its id has come; report anything else and return None."""
    if isinstance(item, Rejection):
        run.reject(item)
        return None
    digest = digest_of(item.document_id)
    reason = refusal(item, max_bytes=settings.max_bytes)
    if reason is None and digest in run.seen:
        reason = f"the id {item.document_id!r} came before in this run; the first one counts"
    if reason is not None:
        run.reject(Rejection(item.source, item.line, reason, item.document_id))
        return None
    run.seen.add(digest)
    return item


async def items_of(
    document: SourceDocument, content_hash: str, replaces: bool, embedder: Embedder, chunking: Chunking, scan: Scan
) -> list[Item]:
    """Cut a document into chunks on their way, in a thread of its own."""
    cut = await asyncio.to_thread(cut_document, document, embedder, chunking, scan)
    return [
        Item(
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
) -> dict[str, Known]:
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
        return {row[0]: Known(*row[1:]) for row in await cursor.fetchall()}
