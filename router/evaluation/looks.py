"""First looks at sets of questions through the real retriever: the rows that evidence models are fitted and judged on.

A row holds what the classifier computes for a question and nothing of its text or of a document, so rows may be kept
and shipped where texts may not.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.neutral import neutral
from classifier.surface import surface_features
from router.routing.evidence import evidence_of, parts_of
from standard.domain.passage import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from router.evaluation.qaset import QaSet, SupportedQuestion
    from standard.domain.passage import SearchResult
    from standard.embedding.protocol import Embedder
    from standard.retrieval.retriever import CorpusRetriever

SHOWN = 5
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Looks:
    """First looks at n questions of one set.

    `evidence` (n, features), `surface` (n, features) and `vectors` (n, d) are the models' inputs. `several` (n,) tells
    whether a question needs more than one document, `incomplete` (n,) whether the SHOWN passages of a single-shot
    answer fail to touch every one that it needs.
    """

    name: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    evidence: NDArray[np.float32]
    surface: NDArray[np.float32]
    vectors: NDArray[np.float32]
    several: NDArray[np.bool_]
    incomplete: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids)

    def chosen(self, rows: NDArray[np.int64]) -> Looks:
        """Return some of them, by row number."""
        return Looks(
            self.name,
            tuple(self.ids[row] for row in rows),
            tuple(self.texts[row] for row in rows),
            self.evidence[rows],
            self.surface[rows],
            self.vectors[rows],
            self.several[rows],
            self.incomplete[rows],
        )


async def look_at(
    retriever: CorpusRetriever,
    embedder: Embedder,
    qa: QaSet,
    scope: Scope,
    *,
    report: Callable[[int], None] = lambda _: None,
) -> Looks:
    """Ask every question of a set once; `report` takes the number of questions done.

    Raises what the retriever and the embedder raise.
    """
    gate = asyncio.Semaphore(_AT_ONCE)
    done = 0

    async def one(question: SupportedQuestion) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
        nonlocal done
        parts = parts_of(question.text)
        async with gate:
            vectors = await embedder.embed_queries([neutral(question.text), *parts.texts])
            found = await retriever.search(scope, question.text, vectors[0], k=SHOWN)
        evidence = evidence_of(question.text, vectors[0], found, parts, vectors[1:])
        if evidence is None:
            raise ValueError(f"the retriever gave no vectors for {qa.name}; evidence cannot be looked at")
        done += 1
        report(done)
        return evidence, vectors[0], lacks(qa, question, found)

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(one(question)) for question in qa.questions]
    rows = [task.result() for task in asked]
    texts = tuple(question.text for question in qa.questions)
    return Looks(
        name=qa.name,
        ids=tuple(question.id for question in qa.questions),
        texts=texts,
        evidence=np.array([row[0] for row in rows], dtype=np.float32),
        surface=np.array([surface_features(text) for text in texts], dtype=np.float32),
        vectors=np.array([row[1] for row in rows], dtype=np.float32),
        several=np.array([question.multiple for question in qa.questions], dtype=bool),
        incomplete=np.array([row[2] for row in rows], dtype=bool),
    )


def lacks(qa: QaSet, question: SupportedQuestion, found: SearchResult) -> bool:
    """Say whether the passages shown fail to touch some document that the question needs."""
    shown = found.passages[:SHOWN]
    touched = {item.passage.title.raw if qa.by_title else item.passage.document_id for item in shown}
    return any(choices.isdisjoint(touched) for choices in question.support)
