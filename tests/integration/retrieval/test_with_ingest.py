"""Search and tools over what the real ingest wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator

from standard.corpus.collections import EmbedderIdentity, create_collection
from standard.corpus.document import SourceDocument
from standard.corpus.ingest import ingest
from standard.database.pool import Pool
from standard.domain.passage import Scope
from standard.retrieval.reader import CorpusReader
from standard.retrieval.retriever import CorpusRetriever
from tests.support.hashing_embedder import HashingEmbedder

HANDBOOK = "# Handbook\n\n" + "\n\n".join(
    f"## Chapter {number}\n\n"
    + " ".join(f"Rule {number}.{line} forbids item{number}x{line} on deck." for line in range(40))
    for number in range(8)
)


async def test_chunks_sections_and_sentences_of_an_ingested_document_are_found(pool: Pool) -> None:
    embedder = HashingEmbedder()
    identity = EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions)
    await create_collection(pool, "default", "default", embedder=identity)

    async def documents() -> AsyncIterator[SourceDocument]:
        yield SourceDocument("handbook", "Deck handbook", HANDBOOK, groups=("crew",))
        yield SourceDocument("memo", "Memo", "Chapter 3 of the Deck handbook forbids item3x7.")

    report = await ingest(pool, "default", "default", documents(), embedder)
    assert report.added == 2
    retriever = CorpusRetriever(pool, embedder_id=embedder.id, embedder_checksum=embedder.checksum)
    tools = CorpusReader(pool, retriever)
    crew = Scope(groups=frozenset({"crew"}))
    question = "Which rule forbids item3x7 on deck?"
    vector = (await embedder.embed_queries([question]))[0]

    found = await retriever.search(crew, question, vector, k=3)
    best = next(item.passage for item in found.passages if item.passage.document_id == "handbook")
    assert "item3x7 " in best.text.raw
    assert "Chapter 3" in best.section_heading
    outsider = await retriever.search(Scope(), question, vector, k=3)
    assert {item.passage.document_id for item in outsider.passages} == {"memo"}

    section = (await tools.read_section(crew, best, neighbours=False)).text.raw
    assert best.text.raw in section
    assert section in HANDBOOK
    wider = (await tools.read_section(crew, best, neighbours=True)).text.raw
    assert section in wider
    assert len(wider) > len(section)

    by_sentence = await tools.semantic_search(crew, question, vector, k=1)
    assert "item3x7 " in by_sentence[0].passage.text.raw
    exact = await tools.keyword_search(crew, "item3x7", k=5)
    assert {item.passage.document_id for item in exact} == {"handbook", "memo"}
    memo = [item.passage for item in outsider.passages]
    linked = await tools.find_linked(crew, memo, question=question, vector=vector, k=3)
    assert {item.passage.document_id for item in linked} == {"handbook"}
