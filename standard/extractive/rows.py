"""Ask a corpus and write what its retrieval brings: the rows that standard.extractive.fit reads.

    python -m standard.extractive.rows OUT.jsonl SET … [--documents N]

A SET is a folder with questions.jsonl and a corpus: corpus*.jsonl, or a folder `corpus` of files. It may have
questions_unanswerable.jsonl (near) and questions_document_wording.jsonl; each set is also asked questions of the other
sets (far). A corpus of more than N documents (default 1500) is cut to those that support a question and the first of
the others. A throw-away database, the shipped embedder and the product's own ingest and search are used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from standard.corpus.collections import EmbedderIdentity, create_collection
from standard.corpus.document import Rejection, SourceDocument
from standard.corpus.ingest import ingest
from standard.corpus.sources import read_sources
from standard.database.embedded import start_embedded
from standard.database.migrate import migrate
from standard.database.pool import DatabaseConfig, open_pool
from standard.domain.passage import Scope
from standard.embedding.factory import open_embedder
from standard.extractive.features import sentences_of
from standard.retrieval.retriever import CorpusRetriever

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.database.pool import Pool
    from standard.domain.passage import RetrievedPassage
    from standard.embedding.protocol import Embedder

PASSAGES = 5
FAR_QUESTIONS = 75
DOCUMENT_WORDED = 130


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of a set, as its file has it, and its kind (see standard.extractive.fit)."""

    kind: str
    data: dict[str, Any]

    @property
    def answers(self) -> list[str] | None:
        """Answers, quotes that hold the answer, or None."""
        if self.kind in ("near", "far"):
            return None
        return list(self.data.get("support") or self.data["answers"])

    @property
    def supporting(self) -> list[str]:
        """Documents with the answer, and those that may stand in for one."""
        stand_ins = (self.data.get("alt_supporting_ids") or {}).values()
        return [*self.data.get("supporting_ids", ()), *(one for many in stand_ins for one in many)]


def read_questions(folder: Path, seed: int) -> list[Asked]:
    """The questions of a set; those over a corpus with passages held out are left out."""
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    files = {"user": "questions", "near": "questions_unanswerable", "document": "questions_document_wording"}
    asked = []
    for kind, name in files.items():
        path = folder / f"{name}.jsonl"
        if not path.exists():
            continue
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [row for row in rows if not row.get("held_out_ids") and row.get("answer_in_gold", True)]
        if kind == "document" and len(rows) > DOCUMENT_WORDED:
            rows = chance.sample(rows, DOCUMENT_WORDED)
        asked += [Asked(kind, row) for row in rows]
    return asked


def read_corpus(folder: Path, wanted: set[str], most: int) -> Iterator[SourceDocument]:
    """The documents of a set: those `wanted` and others up to `most`."""
    files = sorted(folder.glob("corpus*.jsonl")) or [folder / "corpus"]
    others = most - len(wanted)
    for item in read_sources([str(path) for path in files]):
        if isinstance(item, Rejection):
            continue
        if item.document_id not in wanted:
            others -= 1
            if others < 0:
                continue
        yield item


async def export_set(
    name: str,
    documents: Iterator[SourceDocument],
    questions: Sequence[Asked],
    pool: Pool,
    embedder: Embedder,
    out: TextIO,
) -> None:
    """Ingest a set and write one row a question."""
    identity = EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions)
    await create_collection(pool, "default", name, embedder=identity)

    async def source() -> AsyncIterator[SourceDocument]:
        for document in documents:
            yield document

    await ingest(pool, "default", name, source(), embedder)
    retriever = CorpusRetriever(pool, embedder_id=embedder.id, embedder_checksum=embedder.checksum)
    known: dict[str, NDArray[np.float32]] = {}
    for asked in questions:
        text = asked.data["question"]
        vector = (await embedder.embed_queries([text]))[0]
        found = await retriever.search(Scope(collection=name), text, vector, k=PASSAGES)
        sentences = [sentence.text for sentence in sentences_of([item.passage for item in found.passages])]
        fresh = [sentence for sentence in dict.fromkeys(sentences) if sentence not in known]
        for start in range(0, len(fresh), 32):
            part = fresh[start : start + 32]
            known.update(zip(part, await embedder.embed_queries(part), strict=True))
        row = {
            "set": name,
            "kind": asked.kind,
            "question": text,
            "answers": asked.answers,
            "supporting": asked.supporting,
            "idf": dict(found.term_idf),
            "similarities": [round(float(known[sentence] @ vector), 4) for sentence in sentences],
            "passages": [_passage(item) for item in found.passages],
        }
        out.write(json.dumps(row) + "\n")


def _passage(item: RetrievedPassage) -> dict[str, object]:
    return {
        "id": item.passage.passage_id,
        "doc": item.passage.document_id,
        "title": item.passage.title.raw,
        "heading": item.passage.section_heading,
        "text": item.passage.text.raw,
        "score": item.score,
        "dense": item.dense_score,
        "lexical": item.lexical_score,
    }


async def main(arguments: Sequence[str]) -> None:
    """Export all sets into one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--documents", type=int, default=1500)
    options = parser.parse_args(arguments)
    own = {folder.name: read_questions(folder, seed=1) for folder in options.sets}
    chance = random.Random(2)  # noqa: S311 - a sample, not a secret
    with tempfile.TemporaryDirectory(prefix="pm-rows-") as place, options.out.open("w", encoding="utf-8") as out:
        server = start_embedded(Path(place), durable=False)
        try:
            await migrate(server.url)
            async with open_pool(DatabaseConfig(url=server.url)) as pool, open_embedder() as embedder:
                for folder in options.sets:
                    questions = own[folder.name]
                    foreign = [item for name, items in own.items() if name != folder.name for item in items]
                    foreign = [item for item in foreign if item.kind == "user"]
                    far = chance.sample(foreign, min(FAR_QUESTIONS, len(foreign)))
                    asked = [*questions, *(Asked("far", item.data) for item in far)]
                    wanted = {one for item in questions for one in item.supporting}
                    documents = read_corpus(folder, wanted, options.documents)
                    await export_set(folder.name, documents, asked, pool, embedder, out)
                    sys.stderr.write(f"{folder.name}: {len(asked)} questions\n")
        finally:
            server.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
