"""One knowledge base in five formats: the same question finds the same document, whatever format it was written in.

Asked: the questions that one document answers, in users' wording and in the documents' own.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from standard.corpus.collections import EmbedderIdentity, create_collection
from standard.corpus.ingest import ingest
from standard.corpus.sources import in_thread, read_sources
from standard.database.pool import DatabaseConfig, open_pool
from standard.domain.passage import Scope
from standard.embedding.factory import open_embedder
from standard.retrieval.retriever import CorpusRetriever

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.data, pytest.mark.timeout(900)]

FORMATS = ("md", "html", "pdf", "docx", "pptx")
K = 5


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def single_document_questions(folder: Path) -> list[tuple[str, str]]:
    """Return (question, name of the document that answers it)."""
    names = {row["id"]: row["title"] for row in rows(folder / "corpus.jsonl")}
    return [
        (row["question"], names[row["supporting_ids"][0]])
        for file in ("questions.jsonl", "questions_document_wording.jsonl")
        for row in rows(folder / file)
        if len(row["supporting_ids"]) == 1
    ]


Found: TypeAlias = dict[str, list[tuple[str, list[str]]]]


@pytest.fixture(scope="module")
def found(module_database_url: str, public_data: Path) -> Found:
    """By format: for each question the right document, and the documents of the first passages."""

    async def measure() -> Found:
        questions = single_document_questions(public_data / "qa" / "velvera")
        results: Found = {}
        async with open_embedder() as embedder, open_pool(DatabaseConfig(url=module_database_url)) as pool:
            identity = EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions)
            retriever = CorpusRetriever(pool, embedder_id=embedder.id, embedder_checksum=embedder.checksum)
            vectors = await embedder.embed_queries([question for question, _ in questions])
            for name in FORMATS:
                await create_collection(pool, "default", name, embedder=identity)
                source = in_thread(read_sources([str(public_data / "documents" / "velvera" / name)]))
                report = await ingest(pool, "default", name, source, embedder)
                assert (report.added, report.rejected) == (38, ())
                searches = await retriever.search_many(
                    Scope(collection=name), [question for question, _ in questions], vectors, k=20
                )
                results[name] = [
                    (right, list(dict.fromkeys(hit.passage.document_id for hit in search.passages)))
                    for (_, right), search in zip(questions, searches, strict=True)
                ]
        return results

    return asyncio.run(measure())


def recall(results: list[tuple[str, list[str]]]) -> float:
    return sum(right in documents[:K] for right, documents in results) / len(results)


@pytest.mark.parametrize("name", FORMATS)
def test_the_right_document_is_found_in_every_format(found: Found, name: str) -> None:
    assert recall(found[name]) >= 0.93


@pytest.mark.parametrize("name", FORMATS[1:])
def test_a_question_finds_in_every_format_what_it_finds_in_markdown(found: Found, name: str) -> None:
    differs = [
        (right in ours[:K]) != (right in theirs[:K])
        for (right, ours), (_, theirs) in zip(found["md"], found[name], strict=True)
    ]
    assert sum(differs) / len(differs) <= 0.05
