"""The same questions in both generations: how far what they find agrees, and which finds more of what is known."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from psycopg import sql

from standard.corpus.collections import partition
from standard.corpus.sentences import sentence_spans
from standard.database.pool import connection
from standard.domain.errors import FailedPrecondition
from standard.retrieval.pin import reading_generation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from standard.corpus.reembed.state import Reembedding
    from standard.database.pool import Pool
    from standard.domain.passage import SearchResult

Search: TypeAlias = "Callable[[str, int], Awaitable[SearchResult]]"
"""Searches the collection for a text; the second is the number of passages."""

SHOWN = 10
"""Questions whose documents are shown, those that agree least."""
_LONGEST, _SHORTEST = 200, 30  # code points of a sentence that is taken for a question
_CUT = 200  # code points of a question that is shown
_PASSAGES_A_DOCUMENT = 4  # looked at for each document that is counted
_MOST_PASSAGES = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the ids of documents that an answer needs, none where they are not known."""

    text: str
    supporting_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """What both generations found for a question, as ids of documents, best first; `overlap` is 0-1."""

    question: str
    overlap: float
    former: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Means over the questions; `former_recall` and `new_recall` over the `judged` ones, None without any.

    `better` and `worse` count judged questions for which the new generation finds more, or fewer, of the known
    documents. Seconds are medians of a search, its question's embedding included.
    """

    questions: int
    overlap: float
    judged: int
    former_recall: float | None
    new_recall: float | None
    better: int
    worse: int
    former_seconds: float
    new_seconds: float
    differences: tuple[Found, ...]


async def compare(change: Reembedding, questions: Sequence[Asked], search: Search, *, k: int) -> Comparison:
    """Search for each question in both generations and compare the first `k` documents.

    Raises FailedPrecondition without questions, or where nothing is embedded yet; what searches raise.
    """
    if not questions:
        raise FailedPrecondition("there is nothing to compare: give questions, or ingest documents with sentences")
    if not change.new.passages:
        raise FailedPrecondition("nothing is embedded with the new embedder yet; wait a moment")
    sides = change.former.generation_id, change.new.generation_id
    found: list[Found] = []
    recalls: list[tuple[float, float]] = []
    seconds: tuple[list[float], list[float]] = ([], [])
    for asked in questions:
        documents = []
        for side, generation in enumerate(sides):
            began = time.perf_counter()
            with reading_generation(change.tenant, change.name, generation):
                result = await search(asked.text, min(k * _PASSAGES_A_DOCUMENT, _MOST_PASSAGES))
            seconds[side].append(time.perf_counter() - began)
            documents.append(tuple(dict.fromkeys(each.passage.document_id for each in result.passages))[:k])
        former, new = documents
        shared = len({*former} & {*new}) / max(1, len(former), len(new)) if former or new else 1.0
        found.append(Found(asked.text[:_CUT], shared, former, new))
        if wanted := asked.supporting_ids:
            recalls.append((len(wanted & {*former}) / len(wanted), len(wanted & {*new}) / len(wanted)))
    differing = sorted((each for each in found if each.overlap < 1.0), key=lambda each: each.overlap)
    return Comparison(
        questions=len(found),
        overlap=statistics.fmean(each.overlap for each in found),
        judged=len(recalls),
        former_recall=statistics.fmean(former for former, _ in recalls) if recalls else None,
        new_recall=statistics.fmean(new for _, new in recalls) if recalls else None,
        better=sum(new > former for former, new in recalls),
        worse=sum(new < former for former, new in recalls),
        former_seconds=statistics.median(seconds[0]),
        new_seconds=statistics.median(seconds[1]),
        differences=tuple(differing[:SHOWN]),
    )


async def sampled(pool: Pool, change: Reembedding, count: int) -> list[Asked]:
    """Take sentences of the collection for questions, each with its own document; the same ones every time.

    Documents limited to access groups, and quarantined passages, are left out.
    """
    async with connection(pool, statement_timeout=60.0) as conn:
        cursor = await conn.execute(
            sql.SQL(
                """
                select d.document_id, c.text from {chunk} c join document d using (document_key)
                where c.verdict <> 'quarantine' and d.access_groups = '{{}}'
                order by hashint8(c.chunk_key), c.chunk_key limit %s
                """
            ).format(chunk=partition("chunk", change.former.generation_id)),
            [2 * count],
        )
        rows = await cursor.fetchall()
    asked: list[Asked] = []
    for document_id, text in rows:
        sentences = [text[start:end].strip() for start, end in sentence_spans(text, 0, len(text))]
        fitting = [each for each in sentences if _SHORTEST <= len(each) <= _LONGEST]
        if fitting and len(asked) < count:
            asked.append(Asked(max(fitting, key=len), frozenset({document_id})))
    return asked
