"""Ingest over a real PostgreSQL, with an embedder that hashes words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standard.corpus.document import SourceDocument
from tests.support.corpora import collection_of, fill
from tests.support.hashing_embedder import HashingEmbedder

if TYPE_CHECKING:
    from standard.database.pool import Pool


def documents(count: int, sentences: int = 8) -> list[SourceDocument]:
    body = " ".join(f"Here are the words alpha{n}, beta{n % 7} and gamma." for n in range(sentences))
    return [SourceDocument(f"doc-{n}", f"Title {n}", f"{body} This one is number{n}.") for n in range(count)]


async def rows(pool: Pool, query: str) -> list[tuple[object, ...]]:
    async with pool.connection() as conn:
        return await (await conn.execute(query.encode())).fetchall()


async def test_what_is_ingested_is_there_with_chunks_sentences_and_postings(pool: Pool) -> None:
    report = await fill(pool, HashingEmbedder(), documents(3))
    collection = await collection_of(pool)
    assert (report.added, report.replaced, report.unchanged, report.rejected) == (3, 0, 0, ())
    assert (collection.document_count, collection.passage_count) == (3, report.passages)
    assert await rows(pool, "select count(*) from chunk") == [(report.passages,)]
    assert (await rows(pool, "select count(*) from sentence"))[0][0] == 3 * 9
    [(postings, length)] = await rows(pool, "select sum(frequency), max(length) from posting")
    [(total, lexemes)] = await rows(pool, "select sum(lexical_length), max(lexical_length) from chunk")
    assert (postings, length) == (total, lexemes)


async def test_the_same_input_again_changes_nothing_and_embeds_nothing(pool: Pool) -> None:
    embedder = HashingEmbedder()
    await fill(pool, embedder, documents(5))
    before = embedder.passages
    report = await fill(pool, embedder, documents(5))
    assert (report.added, report.replaced, report.unchanged) == (0, 0, 5)
    assert embedder.passages == before
