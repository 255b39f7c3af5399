"""Search over a table that somebody else made and fills: the same protocol, fusion and evidence as over our own corpus.

    text -> the table's own embedder -> nearest rows | rows with the words (at once, a connection each)
         -> fusion -> one statement that reads the head of the list -> scan -> SearchResult

Nothing is written, locked or prepared there. What differs from the gateway's own corpus, and why, is in docs/tables.md.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import structlog
from numpy.typing import NDArray

from standard.database.pool import connection, transaction
from standard.domain.errors import (
    DeadlineExceeded,
    EmbedderUnavailable,
    FailedPrecondition,
    InvalidInput,
    NotFound,
    Overloaded,
    PointsmanError,
)
from standard.domain.passage import Passage, RetrievedPassage, ScanFinding, SearchResult, StageSeconds
from standard.foreign.conditions import Condition, scope_condition
from standard.foreign.rows import decode, passage_of, rows_sql
from standard.foreign.statements import nearest_sql, words_sql
from standard.foreign.terms import RANKED_ROWS, Frequencies, leading
from standard.foreign.view import TableView, describe, table_errors
from standard.retrieval.fusion import Fused, Leg, convex_fusion
from standard.retrieval.retriever import MAX_EXCLUDED, MAX_K, MAX_QUERY_LENGTH, RetrievalSettings, searchable
from standard.retrieval.together import all_of, each_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from standard.database.pool import Connection, Pool
    from standard.domain.passage import Scope
    from standard.foreign.evidence import EvidenceVectors
    from standard.foreign.mapping import TableMapping
    from standard.sandbox.policy import ScanCache

_log = structlog.get_logger("pointsman.tables")

VIEW_SECONDS = 300.0
"""A table is looked at again after so long, or as soon as a statement finds it changed."""
FAILED_VIEW_SECONDS = 5.0
"""A table that cannot be used is looked at again after so long."""
EXACT_SECONDS = 3.0
"""Longest time of the exact search that follows an index scan that came back short."""
WORDS_SECONDS = 2.0
"""Longest time of the lexical leg; beyond it a search goes by meaning alone."""

EmbedQuery: TypeAlias = Callable[[str], Awaitable[NDArray[np.float32]]]
"""Embeds one text with the table's model; L2-normalised (d,)."""


@dataclass(frozen=True, slots=True)
class TableEmbedder:
    """The model that a table was filled with. `ours`: it is the gateway's own, whose vectors come with each search."""

    id: str
    dimensions: int
    embed: EmbedQuery
    ours: bool = False


@dataclass(frozen=True, slots=True)
class _LegResult:
    leg: Leg[str]
    cosine: Mapping[str, float] = field(default_factory=dict)
    term_idf: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Head:
    passages: Mapping[str, Passage]
    vectors: Mapping[str, bytes]
    withheld: tuple[ScanFinding, ...] = ()


class ForeignRetriever:
    """Implements standard.domain.passage.Retriever over one table.

    `scan` remembers verdicts by content; it is used from worker threads, one at a time. `evidence` gives the candidates
    of a table with another model vectors of the gateway's own; without it they come with none.
    """

    def __init__(
        self,
        pool: Pool,
        mapping: TableMapping,
        embedder: TableEmbedder,
        scan: ScanCache,
        *,
        settings: RetrievalSettings,
        evidence: EvidenceVectors | None = None,
        view_seconds: float = VIEW_SECONDS,
    ) -> None:
        self.mapping = mapping
        self.embedder = embedder
        self.settings = settings
        self._pool = pool
        self._evidence = evidence
        self._frequencies = Frequencies()
        self._scan = scan
        self._scanning = threading.Lock()
        self._view_seconds = view_seconds
        self._view: TableView | PointsmanError | None = None
        self._view_until = 0.0
        self._looking = asyncio.Lock()

    async def view(self, tenant: str | None = None) -> TableView:
        """The table as it was when last looked at.

        Raises NotFound for a tenant who may not know of it, FailedPrecondition where it cannot be used,
        DatabaseUnavailable.
        """
        if tenant is not None and not self.mapping.open_to(tenant):
            raise NotFound(f"there is no collection {self.mapping.name!r}")
        loop = asyncio.get_running_loop()
        if loop.time() >= self._view_until:
            async with self._looking:
                if loop.time() >= self._view_until:
                    await self._look(loop)
        if isinstance(self._view, PointsmanError):
            raise self._view.with_traceback(None)
        assert self._view is not None  # noqa: S101 - _look sets it or raises
        return self._view

    async def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._view = await describe(self._pool, self.mapping, self.embedder.dimensions, self.embedder.id)
        except (FailedPrecondition, InvalidInput) as problem:
            self._view = problem
            self._view_until = loop.time() + FAILED_VIEW_SECONDS
            _log.error("a table cannot be used", table=self.mapping.name, problem=problem.message)
        else:
            self._view_until = loop.time() + self._view_seconds
            for warning in self._view.warnings:
                _log.warning("table", table=self.mapping.name, warning=warning)

    def _forget(self) -> None:
        self._view_until = 0.0

    async def search(
        self,
        scope: Scope,
        text: str,
        vector: NDArray[np.float32],
        *,
        k: int,
        exclude: frozenset[str] = frozenset(),
    ) -> SearchResult:
        """Find passages; see Retriever. `vector` is read only where the gateway's embedder is the table's."""
        if not 1 <= k <= MAX_K:
            raise InvalidInput("top_k", f"is {k}; 1 to {MAX_K} are allowed")
        view = await self.view(scope.tenant)
        condition = self.condition(view, scope)
        wanted = max(k, self.settings.candidates) + min(len(exclude), MAX_EXCLUDED)
        depth = max(self.settings.depth, k) + min(len(exclude), MAX_EXCLUDED)
        near, hit = await all_of(
            [
                self.dense(view, condition, text, vector, depth=depth, wanted=wanted),
                self.words(view, condition, text, depth=depth),
            ]
        )
        weight = self.settings.dense_weight
        fused = convex_fusion([near.leg.without(exclude), hit.leg.without(exclude)], [weight, 1.0 - weight])
        began = time.perf_counter()
        head = await self._head(view, condition, fused, max(k, self.settings.candidates))
        seconds = StageSeconds(near.seconds, hit.seconds, time.perf_counter() - began)
        result = self._result(view, fused, near, hit, head, k, seconds)
        if self._evidence is None or self.embedder.ours:
            return result
        try:
            return replace(result, vectors=await self._evidence.of(result.candidates))
        except (EmbedderUnavailable, Overloaded) as problem:  # the text alone decides the route, as it does without
            _log.warning("no evidence for the route", table=self.mapping.name, problem=problem.message)
            return result

    async def search_many(
        self, scope: Scope, texts: Sequence[str], vectors: NDArray[np.float32], *, k: int
    ) -> list[SearchResult]:
        """Search for several texts, a few at a time, so that one caller cannot take the whole pool."""
        at_once = min(self.settings.concurrency, self._pool.max_size // 2)
        return await each_of(lambda text, vector: self.search(scope, text, vector, k=k), texts, vectors, at_once)

    def condition(self, view: TableView, scope: Scope) -> Condition:
        """What of the table a caller may see; raises InvalidInput for a filter that it cannot be filtered by."""
        return scope_condition(view.mapping, view.table.columns, view.fixed, scope)

    @asynccontextmanager
    async def reading(self, seconds: float | None = None) -> AsyncIterator[Connection]:
        """Yield a connection for one statement on the table, or with `seconds`, which bound each, for several.

        What PostgreSQL says of a table that has changed becomes FailedPrecondition, and the table is looked at again.
        """
        try:
            opened = connection(self._pool) if seconds is None else transaction(self._pool, statement_timeout=seconds)
            async with opened as conn:
                with table_errors(self.mapping):
                    yield conn
        except FailedPrecondition:
            self._forget()
            raise

    async def query_vector(self, text: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The text's embedding by the table's model."""
        embedded = vector if self.embedder.ours else await self.embedder.embed(text)
        if len(embedded) != self.embedder.dimensions:
            raise FailedPrecondition(
                f"the embedder {self.embedder.id!r} of the table {self.mapping.name!r} gave {len(embedded)} dimensions,"
                f" not {self.embedder.dimensions}"
            )
        return embedded

    async def dense(
        self,
        view: TableView,
        condition: Condition,
        text: str,
        vector: NDArray[np.float32],
        *,
        depth: int,
        wanted: int,
    ) -> _LegResult:
        """The nearest `depth` rows; with a filter at least `wanted` where there are as many."""
        query = await self.query_vector(text, vector)
        parameters = {
            **condition.parameters,
            "vector": "[" + ",".join(map(repr, query.tolist())) + "]",
            "depth": depth,
        }
        began = time.perf_counter()
        breadth = max(self.settings.ef_search, depth), self.settings.max_scan_tuples
        async with self.reading() as conn:
            statement = nearest_sql(view, condition, *breadth)
            rows = await (await conn.execute(statement, parameters, prepare=False)).fetchall()
        if view.index is not None and len(rows) < min(wanted, view.corpus_size):
            # the scan ended early, or there are no more that the filter keeps: only the exact search can tell
            try:
                async with self.reading(EXACT_SECONDS) as conn:
                    statement = nearest_sql(view, condition, *breadth, exact=True)
                    rows = await (await conn.execute(statement, parameters, prepare=False)).fetchall()
            except DeadlineExceeded:
                _log.warning("a filtered search came back short", table=self.mapping.name, rows=len(rows))
        rows = [row for row in rows if not math.isnan(row[1])]  # vectors of nothing but zeros
        leg = Leg([row[0] for row in rows], [-row[1] for row in rows])
        cosine = {row[0]: row[2] for row in rows}
        return _LegResult(leg, cosine, seconds=time.perf_counter() - began)

    async def words(self, view: TableView, condition: Condition, text: str, *, depth: int) -> _LegResult:
        """Rows with the words of a text, best first; none where the table has no text index or it takes too long."""
        lexical = view.lexical
        asked = searchable(text[:MAX_QUERY_LENGTH])
        if lexical is None or not asked.strip():
            return _LegResult(Leg([], []))
        began = time.perf_counter()
        idf: dict[str, float] = {}
        rows: list[tuple[str, float]] = []
        try:
            async with self.reading(WORDS_SECONDS) as conn:
                terms = await self._frequencies.terms(conn, view, lexical, asked)
                idf = {term.text: term.idf(view.corpus_size) for term in terms}
                chosen = leading(terms, RANKED_ROWS[lexical.kind])
                if chosen:
                    trigram = lexical.kind == "trigram"
                    parameters = {
                        **condition.parameters,
                        "leading": [each.query for each in chosen]
                        if trigram
                        else " | ".join(each.query for each in chosen),
                        "queries": [each.query for each in terms],
                        "weights": [each.weight * idf[each.text] for each in terms],
                        "depth": depth,
                    }
                    statement = words_sql(view, lexical, condition)
                    rows = await (await conn.execute(statement, parameters, prepare=False)).fetchall()
        except DeadlineExceeded:
            _log.warning("looking words up took too long; going by meaning alone", table=self.mapping.name)
        keys, scores = [row[0] for row in rows], [row[1] for row in rows]
        floor = None if len(keys) >= depth else 0.0
        return _LegResult(Leg(keys, scores, floor), term_idf=idf, seconds=time.perf_counter() - began)

    async def _head(self, view: TableView, condition: Condition, fused: Sequence[Fused[str]], wanted: int) -> _Head:
        """Read the head of the list until `wanted` passages are there or the list ends."""
        passages: dict[str, Passage] = {}
        vectors: dict[str, bytes] = {}
        withheld: list[ScanFinding] = []
        start = 0
        while start < len(fused) and len(passages) < wanted:
            found, sent = await self.read(view, condition, [item.key for item in fused[start : start + wanted]])
            for key, passage in found.items():
                if passage.verdict == "quarantine":
                    withheld.append(
                        ScanFinding(passage.passage_id, passage.verdict, passage.techniques, passage.rules_version)
                    )
                else:
                    passages[key] = passage
            vectors |= sent
            start += wanted
        return _Head(passages, vectors, tuple(withheld))

    async def read(
        self, view: TableView, condition: Condition, keys: Sequence[str]
    ) -> tuple[dict[str, Passage], dict[str, bytes]]:
        """Read rows by id as scanned passages, quarantined ones among them; and their embeddings as sent."""
        ours = self.embedder.ours
        if not keys:
            return {}, {}
        async with self.reading() as conn:
            statement = rows_sql(view, condition, embeddings=ours)
            parameters = {**condition.parameters, "keys": list(keys)}
            rows = await (await conn.execute(statement, parameters, prepare=False)).fetchall()
        passages = [passage_of(view, row) for row in rows]
        judged = await asyncio.to_thread(self._judged, passages)
        vectors = {row[0]: bytes(row[8]) for row in rows if row[8] is not None}
        return {passage.passage_id: passage for passage in judged}, vectors

    def _judged(self, passages: Sequence[Passage]) -> list[Passage]:
        """The passages with the scan's verdicts; in a worker thread, since a new text takes milliseconds."""
        judged = []
        for passage in passages:
            with self._scanning:
                verdict = self._scan.verdict(passage)
            if verdict.verdict != "pass":
                passage = replace(  # noqa: PLW2901
                    passage,
                    verdict=verdict.verdict,
                    techniques=verdict.techniques,
                    rules_version=verdict.rules_version,
                )
            judged.append(passage)
        return judged

    def _result(
        self,
        view: TableView,
        fused: Sequence[Fused[str]],
        near: _LegResult,
        hit: _LegResult,
        head: _Head,
        k: int,
        seconds: StageSeconds,
    ) -> SearchResult:
        dense_ranks = {key: rank for rank, key in enumerate(near.leg.keys)}
        lexical_ranks = {key: rank for rank, key in enumerate(hit.leg.keys)}
        ordered = [
            RetrievedPassage(
                passage=head.passages[item.key],
                score=item.score,
                dense_score=near.cosine.get(item.key),
                dense_rank=dense_ranks.get(item.key),
                lexical_score=hit.leg.scores[rank] if (rank := lexical_ranks.get(item.key)) is not None else None,
                lexical_rank=rank,
            )
            for item in fused
            if item.key in head.passages
        ]
        candidates = ordered[: self.settings.candidates]
        vectors = None
        if self.embedder.ours:
            # a row without an embedding, found by its words, ends what can be laid out as a matrix
            sent = [head.vectors.get(each.passage.passage_id) for each in candidates]
            known = sent.index(None) if None in sent else len(sent)
            candidates = candidates[:known]
            kind = view.table.columns[view.mapping.embedding].type
            vectors = decode([each for each in sent[:known] if each is not None], kind, view.dimensions)
        return SearchResult(
            passages=tuple(ordered[:k]),
            candidates=tuple(candidates),
            term_idf=hit.term_idf,
            corpus_size=view.corpus_size,
            vectors=vectors,
            seconds=seconds,
            withheld=head.withheld,
        )
