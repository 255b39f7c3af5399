"""A collection as tools of the agentic loop use it: search, exact words, sentences, links, whole sections.

Every method takes the caller's scope and keeps to it; what a model writes is only ever a text, a vector or a passage
id.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from pgvector import HalfVector

from standard.database.pool import connection, tenant_rows
from standard.domain.errors import NotFound
from standard.domain.passage import RetrievedPassage
from standard.retrieval.directory import CollectionView
from standard.retrieval.hydrate import hydrate, passage_keys
from standard.retrieval.links import link_score, links_sql, names_in
from standard.retrieval.retriever import searchable
from standard.retrieval.section import screened_section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.database.pool import Pool
    from standard.domain.passage import Passage, Scope, Section
    from standard.retrieval.retriever import CorpusRetriever
    from standard.retrieval.visibility import Visibility

MAX_KEYWORDS = 16
"""Keywords of one search."""
MAX_NAMES = 64
"""Names of one look-up."""
KEYWORD_CANDIDATES = 400
"""Chunks whose text is counted through."""
SENTENCE_CANDIDATES = 60
"""Chunks whose sentences are compared."""

_QUOTED = re.compile(r"\"([^\"]+)\"|“([^“”]+)”|«([^«»]+)»")
_SEPARATOR = re.compile(r"[,;\n|]+")


class CorpusReader:
    """The tools, over the same pool and directory as a retriever.

    `scan_policy` (a key of standard.sandbox.policy.POLICIES) counts for collections without one of their own.
    """

    def __init__(self, pool: Pool, retriever: CorpusRetriever, *, scan_policy: str = "standard") -> None:
        self._pool = pool
        self._retriever = retriever
        self._scan_policy = scan_policy

    async def search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> tuple[RetrievedPassage, ...]:
        """Find passages by meaning and words; see CorpusRetriever.search."""
        return (await self._retriever.search(scope, text, vector, k=k)).passages

    async def keyword_search(self, scope: Scope, keywords: str, *, k: int) -> tuple[RetrievedPassage, ...]:
        """Find passages that hold keywords exactly, letter case aside; best first.

        `keywords` are phrases in quotation marks or between commas, else single words; at most MAX_KEYWORDS. A passage
        scores the sum of count x length of each keyword, over title, headings and text, as `lexical_score`; `score` is
        its share of the best. Words that the collection's language ignores (the, of) find nothing by themselves.
        Source of the score: the keyword tool of A-RAG (2026).
        """
        view, visible = await self._retriever.opened(scope)
        wanted = split_keywords(searchable(keywords))
        if view.generation_id is None or not wanted:
            return ()
        parameters = {
            **visible.parameters,
            "keywords": wanted,
            "text_config": view.text_config,
            "candidates": max(KEYWORD_CANDIDATES, k),
            "k": k,
        }
        async with connection(self._pool) as conn:
            statement = _keyword_sql(view.generation_id, visible.clause).encode()
            rows = await tenant_rows(conn, visible.tenant, statement, parameters)
        best = rows[0][1] if rows else 1
        found = [(key, float(score) / best, float(score)) for key, score in rows]
        passages = await self._read(view, visible, [key for key, _, _ in found])
        return tuple(
            RetrievedPassage(passages[key], score, lexical_score=count, lexical_rank=rank)
            for rank, (key, score, count) in enumerate(found)
            if key in passages
        )

    async def semantic_search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> tuple[RetrievedPassage, ...]:
        """Find passages by their best sentence, best first; `dense_score` is that sentence's cosine similarity.

        The nearest SENTENCE_CANDIDATES chunks by their own embedding are compared again by their sentences'. A chunk
        without stored sentences keeps its own similarity.
        """
        legs = await self._retriever.legs(scope, text, vector, k=max(k, SENTENCE_CANDIDATES), words=False)
        view = legs.view
        if view.generation_id is None or not legs.dense.keys:
            return ()
        near = dict(zip(legs.dense.keys[: max(k, SENTENCE_CANDIDATES)], legs.dense.scores, strict=False))
        statement = _sentence_sql(view.generation_id, view.dimensions, view.distance.operator)
        async with connection(self._pool) as conn:
            wanted = {"keys": list(near), "vector": HalfVector(legs.vector)}
            rows = await tenant_rows(conn, scope.tenant, statement.encode(), wanted)
        by_sentence = {key: view.distance.similarity(distance) for key, distance in rows}
        scores = sorted(((by_sentence.get(key, own), key) for key, own in near.items()), reverse=True)[:k]
        passages = await self._read(view, legs.visible, [key for _, key in scores])
        return tuple(
            RetrievedPassage(passages[key], min(1.0, max(0.0, score)), dense_score=score, dense_rank=rank)
            for rank, (score, key) in enumerate(scores)
            if key in passages
        )

    async def find_linked(
        self, scope: Scope, passages: Sequence[Passage], *, question: str, vector: NDArray[np.float32], k: int
    ) -> tuple[RetrievedPassage, ...]:
        """Find passages of other documents that `passages` (best first) and the question name; see links.

        At most `k`, best first, `via` is "link". Passages given are not returned.
        """
        view, visible = await self._retriever.opened(scope)
        if view.generation_id is None:
            return ()
        vector = await self._retriever.query_vector(view, question, vector)
        names = names_in(passages, searchable(question))
        parameters = {
            **visible.parameters,
            "spans": names.spans,
            "span_ranks": names.span_ranks,
            "names": names.names,
            "name_ranks": names.name_ranks,
            "documents": sorted({passage.document_id for passage in passages}),
            "text_config": view.text_config,
            "vector": HalfVector(vector),
        }
        statement = links_sql(view.generation_id, view.dimensions, view.distance, visible.clause)
        async with connection(self._pool) as conn:
            rows = await (await conn.execute(statement.encode(), parameters)).fetchall()
        scored = []
        for key, distance, strength, rank in rows:
            similarity = view.distance.similarity(distance)
            scored.append((link_score(similarity, strength, rank), similarity, key))
        scored.sort(reverse=True)
        texts = await self._read(view, visible, [key for _, _, key in scored[:k]])
        return tuple(
            RetrievedPassage(texts[key], score, dense_score=similarity, via="link")
            for score, similarity, key in scored[:k]
            if key in texts
        )

    async def read_section(self, scope: Scope, passage: Passage, *, neighbours: bool) -> Section:
        """Return the parent section of a passage (about 1,000 tokens), with `neighbours` the sections around it too.

        Text of quarantined chunks within it is left out. What is left is scanned as a whole, since chunks meet in it:
        it comes without what no reader sees, or empty, where the scan finds cause, and with what was found. Raises
        NotFound where the passage is gone or not for the caller.
        """
        view, visible = await self._retriever.opened(scope)
        documents, positions = passage_keys([passage.passage_id])
        row = None
        if view.generation_id is not None and documents:
            wanted = {"document": documents[0], "position": positions[0], "around": neighbours}
            async with connection(self._pool) as conn:
                statement = _section_sql(view.generation_id, visible.clause)
                rows = await tenant_rows(conn, scope.tenant, statement.encode(), {**visible.parameters, **wanted})
                row = rows[0] if rows else None
        if row is None:
            raise NotFound("the passage is no longer in the collection; search again")
        start, text, withheld_starts, withheld_ends = row
        spans = list(zip(withheld_starts or (), withheld_ends or (), strict=True))
        section = without_spans(text, [(first - start, last - start) for first, last in spans])
        return await screened_section(passage.passage_id, section, view.scan_policy or self._scan_policy)

    async def mentioned(self, scope: Scope, names: Sequence[str]) -> frozenset[str]:
        """Return those of the first MAX_NAMES names whose words all stand in one passage that the caller may see.

        A name of nothing but words that the collection's language ignores counts as mentioned.
        """
        view, visible = await self._retriever.opened(scope)
        by_text: dict[str, str] = {searchable(name): name for name in names[:MAX_NAMES]}
        if view.generation_id is None or not by_text:
            return frozenset()
        parameters = {**visible.parameters, "names": list(by_text), "text_config": view.text_config}
        async with connection(self._pool) as conn:
            statement = _mentioned_sql(view.generation_id, visible.clause)
            rows = await tenant_rows(conn, scope.tenant, statement.encode(), parameters)
        return frozenset(by_text[name] for (name,) in rows)

    async def _read(self, view: CollectionView, visible: Visibility, keys: Sequence[int]) -> Mapping[int, Passage]:
        if view.generation_id is None or not keys:
            return {}
        async with connection(self._pool) as conn:
            return (await hydrate(conn, view.generation_id, visible, keys)).passages


def split_keywords(text: str) -> list[str]:
    """Return the keywords of a tool's argument: quoted phrases, else parts between commas, else words; each once."""
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(text)]
    rest = _QUOTED.sub(" ", text)
    parts = _SEPARATOR.split(rest) if _SEPARATOR.search(rest) else rest.split()
    keywords = dict.fromkeys(" ".join(part.split()).lower() for part in [*quoted, *parts])
    return [keyword for keyword in keywords if keyword][:MAX_KEYWORDS]


def without_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the text without some half-open spans, which may overlap one another and the text's ends."""
    kept, position = [], 0
    for start, end in sorted(spans):
        if end > position:
            kept.append(text[position : max(start, position)])
            position = max(end, position)
    kept.append(text[position:])
    return "".join(kept)


@lru_cache(maxsize=256)
def _keyword_sql(generation_id: int, clause: str) -> str:
    return f"""
with keyword as materialized (
    select k.keyword, analysed.lexemes
    from unnest(%(keywords)s::text[]) k(keyword)
    cross join lateral (
        select array_agg(lexeme) as lexemes from unnest(to_tsvector(%(text_config)s::regconfig, k.keyword))
    ) analysed
    where analysed.lexemes is not null
), held as (
    select p.chunk_key, sum(p.frequency) * length(keyword.keyword) as weight
    from keyword
    join posting p on p.generation_id = {generation_id} and p.term = any(keyword.lexemes)
    group by keyword.keyword, keyword.lexemes, p.chunk_key
    having count(*) = cardinality(keyword.lexemes)
), ranked as (
    select chunk_key, sum(weight) as weight from held group by chunk_key order by weight desc, chunk_key offset 0
), candidate as materialized (
    select chunk_key from ranked
    where (
        select c.verdict <> 'quarantine' and {clause}
        from chunk c join document d on d.document_key = c.document_key
        where c.generation_id = {generation_id} and c.chunk_key = ranked.chunk_key
    )
    limit %(candidates)s
), body as materialized (
    select c.chunk_key, lower(concat_ws(e'\\n', d.title, c.section_heading, c.text)) as text
    from candidate
    join chunk c on c.generation_id = {generation_id} and c.chunk_key = candidate.chunk_key
    join document d on d.document_key = c.document_key
), counted as materialized (
    select body.chunk_key, sum(length(body.text) - length(replace(body.text, keyword.keyword, ''))) as score
    from body cross join keyword
    group by body.chunk_key
)
select chunk_key, score from counted where score > 0 order by score desc, chunk_key limit %(k)s
"""  # noqa: S608 - an integer, and a clause made of constants and placeholders


@lru_cache(maxsize=256)
def _sentence_sql(generation_id: int, dimensions: int, operator: str) -> str:
    return f"""
select s.chunk_key, min(s.embedding::halfvec({dimensions}) {operator} %(vector)b::halfvec({dimensions}))
from sentence s
where s.generation_id = {generation_id} and s.chunk_key = any(%(keys)s::bigint[])
group by s.chunk_key
"""  # noqa: S608 - integers and an operator of the enumeration


@lru_cache(maxsize=256)
def _section_sql(generation_id: int, clause: str) -> str:
    return f"""
with here as (
    select d.document_key, d.text, c.section_start, c.section_end
    from document d
    join chunk c on c.generation_id = {generation_id} and c.document_key = d.document_key
    where {clause} and d.document_id = %(document)s and c.position = %(position)s and c.verdict <> 'quarantine'
), span as (
    select here.document_key, here.text,
        case when %(around)s then coalesce((
            select max(o.section_start) from chunk o
            where o.generation_id = {generation_id} and o.document_key = here.document_key
              and o.section_start < here.section_start
        ), here.section_start) else here.section_start end as start,
        case when %(around)s then coalesce((
            select min(o.section_end) from chunk o
            where o.generation_id = {generation_id} and o.document_key = here.document_key
              and o.section_end > here.section_end
        ), here.section_end) else here.section_end end as stop
    from here
), withheld as (
    select array_agg(c.start_offset order by c.start_offset) as starts,
        array_agg(c.end_offset order by c.start_offset) as stops
    from span
    join chunk c on c.generation_id = {generation_id} and c.document_key = span.document_key
    where c.verdict = 'quarantine' and c.start_offset < span.stop and c.end_offset > span.start
)
select span.start, substr(span.text, span.start + 1, span.stop - span.start), withheld.starts, withheld.stops
from span cross join withheld
"""  # noqa: S608 - as above


@lru_cache(maxsize=256)
def _mentioned_sql(generation_id: int, clause: str) -> str:
    return f"""
with name as materialized (
    select n.name, analysed.lexemes
    from unnest(%(names)s::text[]) n(name)
    cross join lateral (
        select array_agg(lexeme order by (
            select count(*) from (
                select from posting p where p.generation_id = {generation_id} and p.term = lexeme limit 1000
            ) capped
        )) as lexemes
        from unnest(to_tsvector(%(text_config)s::regconfig, n.name))
    ) analysed
)
select name.name from name
where name.lexemes is null or exists (
    select from posting p
    where p.generation_id = {generation_id} and p.term = name.lexemes[1]
      and not exists (
          select from unnest(name.lexemes[2:]) other(term)
          where not exists (
              select from posting q
              where q.generation_id = {generation_id} and q.term = other.term and q.chunk_key = p.chunk_key
          )
      )
      and (
          select c.verdict <> 'quarantine' and {clause}
          from chunk c join document d on d.document_key = c.document_key
          where c.generation_id = {generation_id} and c.chunk_key = p.chunk_key
      )
)
"""  # noqa: S608 - as above
