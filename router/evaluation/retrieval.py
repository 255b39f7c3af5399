"""`pointsman eval retrieval`: what each leg and the fused search find, on sets of questions with known support.

Every set goes into a collection of its own under the tenant `evaluation`, through the same ingest as any corpus;
documents that are there unchanged are not embedded again, so an interrupted run goes on where it stopped and a second
run only asks.

Legs: dense, lexical; rrf, their plain reciprocal rank fusion (k 60, depth 100, unweighted); hybrid, the search of the
product; linked, what a run knows after one more step without a model: the first five documents of hybrid, then those
that find_linked adds (so its @5 equals hybrid's).
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from router.evaluation.fusion_study import AskedLegs, fusion_study
from router.evaluation.metrics import METRICS, distinct, mean, paired_bootstrap, score
from router.evaluation.qaset import QaSet, cut, find_sets, read_set
from standard.corpus.collections import EmbedderIdentity, create_collection, delete_collection, get_collection
from standard.corpus.document import SourceDocument
from standard.corpus.ingest import IngestOptions, ingest
from standard.database.pool import connection
from standard.domain.errors import FailedPrecondition, NotFound
from standard.domain.passage import Scope
from standard.retrieval.fusion import Leg, reciprocal_rank_fusion
from standard.retrieval.reader import CorpusReader
from standard.retrieval.retriever import CorpusRetriever, RetrievalSettings
from standard.retrieval.together import all_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from router.evaluation.qaset import SupportedQuestion
    from standard.corpus.ingest import IngestProgress
    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder

TENANT = "evaluation"
LEGS = ("dense", "lexical", "rrf", "hybrid", "linked")
_FIRST_STEP = 5
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Slice:
    """A seeded part of each set: at most so many questions, over at most so many documents."""

    questions: int
    documents: int
    seed: int = 0


@dataclass(slots=True)
class _Measured:
    """The figures of a set, question by question."""

    qa: QaSet
    scores: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {leg: [] for leg in LEGS})
    asked: list[AskedLegs] = field(default_factory=list)


async def evaluate_retrieval(
    pool: Pool,
    embedder: Embedder,
    directory: Path,
    *,
    names: Sequence[str] = (),
    part: Slice | None = None,
    study: bool = False,
    settings: RetrievalSettings | None = None,
    console: Console | None = None,
) -> dict[str, object]:
    """Measure retrieval on the sets below `directory`, or those of `names`; `part` takes a slice of each.

    Returns JSON's objects: `sets.<name>.<leg>.<metric>` (fractions 0-1; `questions` and `documents` beside the legs);
    `pooled`, the same over all questions of the sets in which some question needs several documents; `differences`,
    hybrid minus rrf in recall@5 there with its interval, and hybrid minus the better leg on each set; with `study` also
    `fusion`, other ways to fuse, cross-validated over the sets. Progress goes to `console` (stderr). Raises NotFound,
    InvalidInput with file and line, DatabaseUnavailable, EmbedderUnavailable.
    """
    folders = find_sets(directory, names)
    measured: list[_Measured] = []
    with _progress(console) as bars:
        for folder in folders:
            qa = await asyncio.to_thread(read_set, folder)
            if part is not None:
                qa = cut(qa, questions=part.questions, documents=part.documents, seed=part.seed)
            collection = await ingest_set(pool, embedder, qa, report=bars(f"{qa.name}: documents", len(qa.documents)))
            asked = bars(f"{qa.name}: questions", len(qa.questions))
            measured.append(await _ask(pool, embedder, qa, collection, settings or RetrievalSettings(), asked))
    return _report(measured, study=study)


async def ingest_set(
    pool: Pool, embedder: Embedder, qa: QaSet, *, report: Callable[[int], None] = lambda _: None
) -> str:
    """Bring a set's collection up to date and return its name; `report` takes the number of documents done.

    A collection that another embedder made is made anew.
    """
    name = f"{qa.name}-{qa.sliced}" if qa.sliced else qa.name
    identity = EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions)
    try:
        made_by: EmbedderIdentity | None = (await get_collection(pool, TENANT, name)).embedder
    except NotFound:
        made_by = None
    if made_by is not None and made_by != identity:
        await delete_collection(pool, TENANT, name)
    if made_by != identity:
        await create_collection(pool, TENANT, name, embedder=identity)

    async def documents() -> AsyncIterator[SourceDocument]:
        for document_id, (title, text) in qa.documents.items():
            yield SourceDocument(document_id, title, text, source=qa.name)

    def progressed(state: IngestProgress) -> None:
        report(state.documents)

    result = await ingest(
        pool, TENANT, name, documents(), embedder, options=IngestOptions(prune=True), progress=progressed
    )
    if result.rejected:
        first = result.rejected[0]
        raise FailedPrecondition(f"{result.rejected_count} documents of {qa.name} were refused, first: {first.reason}")
    return name


async def _ask(
    pool: Pool,
    embedder: Embedder,
    qa: QaSet,
    collection: str,
    settings: RetrievalSettings,
    report: Callable[[int], None],
) -> _Measured:
    retriever = CorpusRetriever(pool, embedder_id=embedder.id, embedder_checksum=embedder.checksum, settings=settings)
    reader = CorpusReader(pool, retriever)
    scope = Scope(TENANT, collection)
    view, _ = await retriever.opened(scope)
    names = await _names_of_chunks(pool, view.generation_id, by_title=qa.by_title)
    gate = asyncio.Semaphore(_AT_ONCE)
    done = 0

    async def one(question: SupportedQuestion) -> tuple[dict[str, dict[str, float]], AskedLegs]:
        nonlocal done
        async with gate:
            vector = (await embedder.embed_queries([question.text]))[0]
            figures, legs = await _ask_one(retriever, reader, scope, names, question, vector, by_title=qa.by_title)
        done += 1
        report(done)
        return figures, legs

    result = _Measured(qa)
    for figures, legs in await all_of([one(question) for question in qa.questions]):
        for leg in LEGS:
            result.scores[leg].append(figures[leg])
        result.asked.append(legs)
    return result


async def _ask_one(
    retriever: CorpusRetriever,
    reader: CorpusReader,
    scope: Scope,
    names: Mapping[int, str],
    question: SupportedQuestion,
    vector: NDArray[np.float32],
    *,
    by_title: bool,
) -> tuple[dict[str, dict[str, float]], AskedLegs]:
    legs = await retriever.legs(scope, question.text, vector, k=100)
    found = await retriever.search(scope, question.text, vector, k=100)
    linked = await reader.find_linked(
        scope,
        [item.passage for item in found.passages[:_FIRST_STEP]],
        question=question.text,
        vector=vector,
        k=50,
    )

    def name(document_id: str, title: str) -> str:
        return title if by_title else document_id

    hybrid = distinct(name(item.passage.document_id, item.passage.title.raw) for item in found.passages)
    after = [name(item.passage.document_id, item.passage.title.raw) for item in linked]
    plain = reciprocal_rank_fusion([_head(legs.dense), _head(legs.lexical)], k=60.0)
    rankings = {
        "dense": distinct(names[key] for key in legs.dense.keys),
        "lexical": distinct(names[key] for key in legs.lexical.keys),
        "rrf": distinct(names[item.key] for item in plain),
        "hybrid": hybrid,
        "linked": distinct([*hybrid[:_FIRST_STEP], *after]),
    }
    figures = {leg: score(ranked, question.support) for leg, ranked in rankings.items()}
    return figures, AskedLegs(legs.dense, legs.lexical, legs.titled, names, question.support)


def _head(leg: Leg[int], depth: int = 100) -> Leg[int]:
    return Leg(leg.keys[:depth], leg.scores[:depth], leg.floor)


async def _names_of_chunks(pool: Pool, generation_id: int | None, *, by_title: bool) -> dict[int, str]:
    column = "d.title" if by_title else "d.document_id"
    statement = (
        f"select c.chunk_key, {column} from chunk c join document d using (document_key)"  # noqa: S608 - a constant
        " where c.generation_id = %s"
    )
    async with connection(pool) as conn:
        return dict(await (await conn.execute(statement.encode(), [generation_id])).fetchall())


def _report(measured: Sequence[_Measured], *, study: bool) -> dict[str, object]:
    sets: dict[str, object] = {}
    behind: dict[str, float] = {}
    for item in measured:
        figures = {leg: mean(scores) for leg, scores in item.scores.items()}
        sets[item.qa.name] = {
            "questions": len(item.qa.questions),
            "documents": len(item.qa.documents),
            **({"slice": item.qa.sliced} if item.qa.sliced else {}),
            **figures,
        }
        better = max(figures["dense"]["recall@5"], figures["lexical"]["recall@5"])
        behind[item.qa.name] = figures["hybrid"]["recall@5"] - better
    report: dict[str, object] = {"sets": sets}
    several = [item for item in measured if item.qa.multi_document]
    differences: dict[str, object] = {"hybrid_minus_better_leg": behind}
    if several:
        pooled = {leg: [figures for item in several for figures in item.scores[leg]] for leg in LEGS}
        report["pooled"] = {
            "sets": [item.qa.name for item in several],
            "questions": len(pooled["hybrid"]),
            **{leg: mean(scores) for leg, scores in pooled.items()},
        }
        differences["hybrid_minus_rrf"] = {
            metric: asdict(
                paired_bootstrap(
                    [figures[metric] for figures in pooled["hybrid"]], [figures[metric] for figures in pooled["rrf"]]
                )
            )
            for metric in METRICS
        }
    report["differences"] = differences
    if study:
        report["fusion"] = fusion_study({item.qa.name: item.asked for item in measured})
    return report


@contextmanager
def _progress(console: Console | None) -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Yield a function that adds a bar and returns the function that moves it."""
    if console is None:
        yield lambda _name, _total: lambda _done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:

        def add(name: str, total: int) -> Callable[[int], None]:
            bar = progress.add_task(name, total=total)

            def move(done: int) -> None:
                progress.update(bar, completed=done)

            return move

        yield add
