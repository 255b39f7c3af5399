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


_INCONSISTENT = {
    "a generation's counters": """
        select g.generation_id from generation g left join chunk c on c.generation_id = g.generation_id
        group by g.generation_id
        having g.chunk_count <> count(c.chunk_key) or g.lexical_total <> coalesce(sum(c.lexical_length), 0)""",
    "postings that no chunk has, or chunks without theirs": """
        select * from (select generation_id, term, chunk_key, frequency::int, length from posting) p
        full join (
            select generation_id, lexeme as term, chunk_key, cardinality(positions) as frequency,
                lexical_length as length
            from chunk cross join unnest(lexemes)
        ) c using (generation_id, term, chunk_key, frequency, length)
        where p.* is null or c.* is null""",
    "sentences without a chunk, or outside it": """
        select s.* from sentence s left join chunk c using (generation_id, chunk_key)
        where c.chunk_key is null or s.end_offset > length(c.text) or s.start_offset >= s.end_offset""",
    "chunks that are no part of their document": """
        select c.chunk_key from chunk c left join document d using (document_key)
        where d.document_key is null or c.text <> substr(d.text, c.start_offset + 1, c.end_offset - c.start_offset)""",
    "documents whose chunks are not numbered from 0 without gaps": """
        select d.document_id from document d left join chunk c using (document_key)
        group by d.document_key, c.generation_id having count(c.*) = 0 or max(c.position) <> count(*) - 1""",
}


async def assert_consistent(pool: Pool) -> None:
    """Fail unless documents, chunks, sentences, postings and counters of the whole database agree."""
    async with pool.connection() as conn:
        for what, query in _INCONSISTENT.items():
            found = await (await conn.execute(query.encode())).fetchall()
            assert not found, f"{what}: {found[:5]}"


async def contents(pool: Pool, collection: str = "default") -> list[tuple[object, ...]]:
    """Return all that a collection's documents and chunks hold, but for keys and times."""
    async with pool.connection() as conn:
        cursor = await conn.execute(
            """
            select d.document_id, d.title, d.text, d.uri, d.metadata::text, d.access_groups, d.content_hash, c.position,
                c.text, c.section_heading, c.lexemes::text, c.embedding::text, c.verdict,
                (select string_agg(s.embedding::text, ';' order by s.position) from sentence s
                 where s.generation_id = c.generation_id and s.chunk_key = c.chunk_key)
            from collection o join document d using (collection_id)
                left join chunk c on c.document_key = d.document_key and c.generation_id = o.active_generation
            where o.name = %s order by d.document_id, c.position
            """,
            [collection],
        )
        return await cursor.fetchall()
