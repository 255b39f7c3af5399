"""Search over our own corpus: a dense and a lexical leg side by side, fused, and only what is wanted read.

    text, vector -> view of the collection -> dense, then titles | lexical | excluded (at once, a connection each)
                 -> fusion -> one statement that reads the head of the list -> SearchResult

Documents whose title the question names are lifted in the fused list: both legs rank a passage by what it says, and
the page about a thing need not say its name in every passage.

No task holds a connection while it waits for another, so a pool of one cannot lock up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from pgvector import HalfVector

from standard.corpus.collections import EmbedderIdentity, EmbedderSpec
from standard.database.pool import connection
from standard.domain.errors import InvalidInput
from standard.domain.passage import RetrievedPassage, SearchResult, StageSeconds
from standard.embedding.protocol import Embedder
from standard.retrieval import dense, lexical
from standard.retrieval.directory import CollectionDirectory, require_embedder
from standard.retrieval.fusion import Fused, Leg, convex_fusion, lift
from standard.retrieval.hydrate import Hydrated, hydrate, keys_sql, matrix, passage_keys
from standard.retrieval.lexical import LexicalHits, Within
from standard.retrieval.links import titles_sql
from standard.retrieval.names import title_spans
from standard.retrieval.together import each_of, three_of
from standard.retrieval.visibility import Visibility, visibility

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.database.pool import Pool
    from standard.domain.passage import Passage, Scope
    from standard.foreign.evidence import EvidenceVectors
    from standard.retrieval.directory import CollectionView

OtherEmbedder: TypeAlias = Callable[[EmbedderIdentity, EmbedderSpec | None], Awaitable[Embedder]]
"""Opens the embedder of a generation by what it remembers of it; raises FailedPrecondition, EmbedderUnavailable."""

MAX_K = 100
"""Passages of one search."""
MAX_EXCLUDED = 900
"""Excluded ids that are sure not to cost passages: with them a leg still fits into hnsw.ef_search, at most 1000."""
MAX_QUERY_LENGTH = 8_000
"""Code points of a query that the lexical leg reads."""
TITLED_CHUNKS = 20
"""Chunks of documents named in the question that are lifted, the nearest ones."""


@dataclass(frozen=True, slots=True)
class RetrievalSettings:
    """Knobs of a search; the defaults are measured (see docs/decisions/).

    `depth` chunks come from each leg (>= k). `dense_weight` (0-1) is the dense leg's share in the fusion, `title_bonus`
    (>= 0) what a chunk gains whose document's title stands in the question, 0 to leave titles alone.
    `candidates` passages are kept for the evidence. `ef_search` (<= 1000) and `max_scan_tuples` steer HNSW. A filter
    that keeps at most `few_documents` is searched exactly. `posting_budget` and `shortlist`: see
    standard.retrieval.lexical. A collection is looked up again after `view_seconds`. `concurrency` searches of one
    search_many run at a time.
    """

    depth: int = 100
    dense_weight: float = 0.45
    title_bonus: float = 0.2
    candidates: int = 20
    ef_search: int = 160
    max_scan_tuples: int = 20_000
    few_documents: int = 1_000
    posting_budget: int = 5_000
    shortlist: int = 400
    view_seconds: float = 1.0
    concurrency: int = 4


@dataclass(frozen=True, slots=True)
class Legs:
    """What both legs brought, with chunk keys of `view`'s generation, and what the search ran within.

    `titled`: chunks of documents whose title the question names. `vector` (d,) is what was searched with.
    """

    view: CollectionView
    visible: Visibility
    vector: NDArray[np.float32]
    dense: Leg[int]
    lexical: Leg[int]
    titled: frozenset[int] = frozenset()
    term_idf: Mapping[str, float] = field(default_factory=dict)
    corpus_size: int = 0
    dense_seconds: float = 0.0
    lexical_seconds: float = 0.0


class CorpusRetriever:
    """Implements standard.domain.passage.Retriever over the corpus tables.

    `embedder_id` and `embedder_checksum` are those of the embedder that makes the query vectors. A collection that
    another one embedded is searched with that one, which `embedder_of` opens by what the collection remembers; without
    it such a collection is refused. `evidence` gives its candidates vectors of the process's own embedder; without it
    they come with none.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        embedder_id: str,
        embedder_checksum: str,
        settings: RetrievalSettings = RetrievalSettings(),
        directory: CollectionDirectory | None = None,
        embedder_of: OtherEmbedder | None = None,
        evidence: EvidenceVectors | None = None,
    ) -> None:
        self._pool = pool
        self._embedder_id = embedder_id
        self._embedder_checksum = embedder_checksum
        self._embedder_of = embedder_of
        self._evidence = evidence
        self.settings = settings
        self.directory = directory or CollectionDirectory(pool, time_to_live=settings.view_seconds)

    async def search(
        self,
        scope: Scope,
        text: str,
        vector: NDArray[np.float32],
        *,
        k: int,
        exclude: frozenset[str] = frozenset(),
    ) -> SearchResult:
        """Find passages; see Retriever. `text` beyond MAX_QUERY_LENGTH code points is not read by the lexical leg."""
        if not 1 <= k <= MAX_K:
            raise InvalidInput("top_k", f"is {k}; 1 to {MAX_K} are allowed")
        began = asyncio.get_running_loop().time()
        found, result = await self._attempt(scope, text, vector, k, exclude, fresher_than=None)
        if not result.passages and found.view.seen_at < began:
            # perhaps the remembered generation is gone; where it is not, there is nothing to find
            again = await self.directory.view(scope.tenant, scope.collection, fresher_than=began)
            if again.generation_id != found.view.generation_id:
                found, result = await self._attempt(scope, text, vector, k, exclude, fresher_than=began)
        if self._evidence is not None and result.vectors is None and result.candidates:
            result = replace(result, vectors=await self._evidence.of(result.candidates))
        return result

    async def search_many(
        self, scope: Scope, texts: Sequence[str], vectors: NDArray[np.float32], *, k: int
    ) -> list[SearchResult]:
        """Search for several texts, a few at a time, so that one caller cannot take the whole pool."""
        at_once = min(self.settings.concurrency, self._pool.max_size // 2)
        return await each_of(lambda text, vector: self.search(scope, text, vector, k=k), texts, vectors, at_once)

    async def opened(self, scope: Scope, *, fresher_than: float | None = None) -> tuple[CollectionView, Visibility]:
        """Look up the collection of a scope and what of it may be seen."""
        view = await self.directory.view(scope.tenant, scope.collection, fresher_than=fresher_than)
        return view, visibility(scope, view.collection_id)

    def ours(self, view: CollectionView) -> bool:
        """Whether the process's own embedder made the vectors of a view's generation."""
        return (view.embedder_id, view.embedder_checksum) == (self._embedder_id, self._embedder_checksum)

    async def query_vector(self, view: CollectionView, text: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The embedding of `text` that a view's generation is searched with: `vector` where its embedder is our own.

        Raises FailedPrecondition for an embedder that is not to be had or of another length, EmbedderUnavailable.
        """
        if view.generation_id is None:
            return vector
        if self._embedder_of is not None and not self.ours(view):
            embedder = await self._embedder_of(view.embedder, view.embedder_spec)
            embedded: NDArray[np.float32] = (await embedder.embed_queries([text]))[0]
            require_embedder(view, embedder.id, embedder.checksum, len(embedded))
            return embedded
        require_embedder(view, self._embedder_id, self._embedder_checksum, len(vector))
        return vector

    async def legs(
        self,
        scope: Scope,
        text: str,
        vector: NDArray[np.float32],
        *,
        k: int = 10,
        exclude: frozenset[str] = frozenset(),
        fresher_than: float | None = None,
        restricted: bool = False,
        words: bool = True,
    ) -> Legs:
        """Run both legs without fusing or reading; without `words` only the dense one looks for something.

        `restricted` heeds access groups even if the view knows of none.
        """
        view, visible = await self.opened(scope, fresher_than=fresher_than)
        vector = await self.query_vector(view, text, vector)
        if view.generation_id is None:
            return Legs(view, visible, vector, Leg([], []), Leg([], []))
        everything = not (visible.filtered or view.restricted or restricted)
        within = Within.ALL if everything else Within.SOME
        narrow = visible
        if visible.filtered and (kept := await self._kept_documents(visible)) is not None:
            within, narrow = Within.FEW, visible.among(kept)
        depth = max(self.settings.depth, k) + min(len(exclude), MAX_EXCLUDED)
        query = _Query(view, narrow, searchable(text[:MAX_QUERY_LENGTH]) if words else "", HalfVector(vector), depth)
        (near, titled, dense_seconds), (hits, lexical_seconds), excluded = await three_of(
            self._dense(query, within, titles=True), self._lexical(query, within), self._excluded(view, exclude)
        )
        if within is not Within.FEW and len(near.keys) < min(depth, view.chunk_count):
            # the scan ended early: the filter keeps too few of what is near, or the index did not reach them
            near, _, more = await self._dense(query, Within.FEW, titles=False)
            dense_seconds += more
            if within is Within.SOME:
                hits, more = await self._lexical(query, Within.FEW)
                lexical_seconds += more
        floor = None if len(hits.keys) >= len(near.keys) else 0.0
        return Legs(
            view,
            visible,
            vector,
            near.without(excluded),
            Leg(hits.keys, hits.scores, floor).without(excluded),
            titled - excluded,
            hits.term_idf,
            hits.corpus_size,
            dense_seconds,
            lexical_seconds,
        )

    async def _attempt(
        self,
        scope: Scope,
        text: str,
        vector: NDArray[np.float32],
        k: int,
        exclude: frozenset[str],
        *,
        fresher_than: float | None,
    ) -> tuple[Legs, SearchResult]:
        found = await self.legs(scope, text, vector, k=k, exclude=exclude, fresher_than=fresher_than)
        fused, head, seconds = await self._fuse_and_read(found, k)
        if head.forbidden:
            # a document was closed since the view was made: search again with the access groups in the condition
            found = await self.legs(scope, text, vector, k=k, exclude=exclude, restricted=True)
            fused, head, seconds = await self._fuse_and_read(found, k)
        return found, self._result(found, fused, head, k, seconds)

    async def _fuse_and_read(self, found: Legs, k: int) -> tuple[list[Fused[int]], Hydrated, float]:
        """Fuse, and read the head of the list until k passages and all candidates are there or the list ends."""
        began = time.perf_counter()
        weight = self.settings.dense_weight
        fused = convex_fusion([found.dense, found.lexical], [weight, 1.0 - weight])
        fused = lift(fused, found.titled, self.settings.title_bonus)
        wanted = max(k, self.settings.candidates)
        candidates = self.settings.candidates if self.ours(found.view) else 0
        head = Hydrated({}, {}, 0)
        if found.view.generation_id is not None and fused:
            async with connection(self._pool) as conn:
                start = 0
                while start < len(fused) and len(head.passages) < wanted:
                    keys = [item.key for item in fused[start : start + wanted]]
                    more = await hydrate(
                        conn,
                        found.view.generation_id,
                        found.visible,
                        keys,
                        embeddings=0 if not candidates else candidates if start == 0 else wanted,
                    )
                    head = Hydrated(
                        head.passages | more.passages,
                        head.embeddings | more.embeddings,
                        head.forbidden + more.forbidden,
                        head.withheld + more.withheld,
                    )
                    start += wanted
        return fused, head, time.perf_counter() - began

    def _result(
        self, found: Legs, fused: list[Fused[int]], head: Hydrated, k: int, fuse_seconds: float
    ) -> SearchResult:
        near = {key: rank for rank, key in enumerate(found.dense.keys)}
        hit = {key: rank for rank, key in enumerate(found.lexical.keys)}
        ordered: list[RetrievedPassage] = []
        vectors: list[bytes] = []
        for item in fused:
            passage = head.passages.get(item.key)
            if passage is not None:
                ordered.append(_retrieved(passage, item, found, near.get(item.key), hit.get(item.key)))
                if len(vectors) == len(ordered) - 1 and item.key in head.embeddings:
                    vectors.append(head.embeddings[item.key])
        # where quarantined passages stood in between, those that follow may have come without an embedding
        vectors = vectors[: self.settings.candidates]
        ours = self.ours(found.view)
        candidates = ordered[: len(vectors) if ours else self.settings.candidates]
        return SearchResult(
            passages=tuple(ordered[:k]),
            candidates=tuple(candidates),
            term_idf=found.term_idf,
            corpus_size=found.corpus_size,
            vectors=matrix(vectors, found.view.dimensions) if ours else None,
            seconds=StageSeconds(dense=found.dense_seconds, lexical=found.lexical_seconds, fuse=fuse_seconds),
            withheld=head.withheld,
        )

    async def _kept_documents(self, visible: Visibility) -> list[int] | None:
        """Return the keys of the documents that a filter keeps, or None if they are more than `few_documents`."""
        statement = (
            f"select d.document_key from document d where {visible.clause}"  # noqa: S608 - see visibility
            " limit %(few_documents)s + 1"
        )
        async with connection(self._pool) as conn:
            parameters = {**visible.parameters, "few_documents": self.settings.few_documents}
            rows = await (await conn.execute(statement.encode(), parameters)).fetchall()
        return None if len(rows) > self.settings.few_documents else [row[0] for row in rows]

    async def _dense(self, query: _Query, within: Within, *, titles: bool) -> tuple[Leg[int], frozenset[int], float]:
        """Return the dense leg and, with `titles`, the chunks of documents that the question names."""
        view = query.view
        if view.generation_id is None:
            return Leg([], []), frozenset(), 0.0
        shape = (view.generation_id, view.dimensions, view.distance)
        parameters: dict[str, object] = {"vector": query.vector, "depth": query.depth}
        if within is Within.FEW:
            statement = dense.exact_sql(*shape, query.visible.clause)
        else:
            statement = dense.scan_sql(*shape, query.visible.clause if within is Within.SOME else "")
            ef_search = min(max(self.settings.ef_search, query.depth), 1000)
            parameters |= {"ef_search": str(ef_search), "max_scan_tuples": str(self.settings.max_scan_tuples)}
        spans = title_spans(query.text, any_case=True) if titles and self.settings.title_bonus > 0.0 else []
        titled: frozenset[int] = frozenset()
        began = time.perf_counter()
        async with connection(self._pool) as conn, conn.cursor(binary=True) as cursor:
            await cursor.execute(statement.encode(), parameters | dict(query.visible.parameters))
            rows = await cursor.fetchall()
            if spans:
                named = {"vector": query.vector, "spans": spans, "limit": TITLED_CHUNKS, **query.visible.parameters}
                await cursor.execute(titles_sql(*shape, query.visible.clause).encode(), named)
                titled = frozenset(key for key, _ in await cursor.fetchall())
        similarity = view.distance.similarity
        leg = Leg([key for key, _ in rows], [similarity(distance) for _, distance in rows])
        return leg, titled, time.perf_counter() - began

    async def _lexical(self, query: _Query, within: Within) -> tuple[LexicalHits, float]:
        view = query.view
        if view.generation_id is None:
            return LexicalHits([], [], {}, 0), 0.0
        parameters = {
            **query.visible.parameters,
            "text": query.text,
            "text_config": view.text_config,
            "depth": query.depth,
            # each of these is tested one by one where a condition holds for some
            "shortlist": max(query.depth, self.settings.shortlist if within is not Within.SOME else 0),
            "posting_budget": self.settings.posting_budget,
        }
        clause = "" if within is Within.ALL else query.visible.clause
        began = time.perf_counter()
        async with connection(self._pool) as conn, conn.cursor(binary=True) as cursor:
            await cursor.execute(lexical.bm25_sql(view.generation_id, clause, within).encode(), parameters)
            row = await cursor.fetchone()
        hits = LexicalHits([], [], {}, 0) if row is None else lexical.hits(row)
        return hits, time.perf_counter() - began

    async def _excluded(self, view: CollectionView, exclude: frozenset[str]) -> frozenset[int]:
        documents, positions = passage_keys(sorted(exclude))
        if not documents or view.generation_id is None:
            return frozenset()
        parameters = {"collection": view.collection_id, "documents": documents, "positions": positions}
        async with connection(self._pool) as conn:
            rows = await (await conn.execute(keys_sql(view.generation_id).encode(), parameters)).fetchall()
        return frozenset(row[0] for row in rows)


@dataclass(frozen=True, slots=True)
class _Query:
    view: CollectionView
    visible: Visibility
    text: str
    vector: HalfVector
    depth: int


def searchable(text: str) -> str:
    """Return the text as PostgreSQL takes it: NUL and lone surrogates, which match nothing, become spaces."""
    return "".join(" " if character == "\x00" or "\ud800" <= character <= "\udfff" else character for character in text)


def _retrieved(
    passage: Passage, item: Fused[int], found: Legs, dense_rank: int | None, lexical_rank: int | None
) -> RetrievedPassage:
    return RetrievedPassage(
        passage=passage,
        score=item.score,
        dense_score=None if dense_rank is None else found.dense.scores[dense_rank],
        dense_rank=dense_rank,
        lexical_score=None if lexical_rank is None else found.lexical.scores[lexical_rank],
        lexical_rank=lexical_rank,
    )
