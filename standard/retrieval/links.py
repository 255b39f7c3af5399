"""Links between documents: titles and entities that one passage names and another is about.

In corpora of encyclopaedia articles, policies or reports the second hop of a question is often written in the first
passage ("… under the management agreement with Harbour Ltd …"). Looking such names up as titles costs one statement and
no model call. Three kinds of link, strongest first:

- title: a document's title, without a closing bracket, stands in the passage;
- in title: a name in the passage stands within a document's title ("INC-2023-008" in "Incident report INC-2023-008:
…");
- mention: a rare name in the passage stands in another passage.

A linked chunk's score is its cosine similarity to the question, plus a share for the strength of its link that falls
with the rank of the passage the link comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from standard.retrieval.names import strong_names, title_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.domain.passage import Passage
    from standard.retrieval.directory import Distance

MAX_SOURCES = 10
"""Passages whose links are followed, the first ones."""
MAX_SPANS = 4000
"""Windows that are looked up as titles, those of the first passages."""
MAX_NAMES = 100
"""Names that are looked for in titles and texts, those of the first passages."""
MAX_TITLES = 20
"""Documents that may share a name in their titles before it is too common to be a link."""
MAX_MENTIONS = 30
"""Passages that may share a name before it is too common to be a link."""
MAX_POSTINGS = 500
"""Passages that may hold the rarest word of a name before it is not looked for in texts."""
CHUNKS_OF_A_DOCUMENT = 3
"""Chunks of a document linked as a whole that are scored, the nearest to the question."""
LINK_SHARE = 0.3

TITLE, IN_TITLE, MENTION = 1.0, 0.7, 0.4


@dataclass(frozen=True, slots=True)
class Names:
    """What to look up: windows that may be titles and names that may stand in titles or texts, parallel to their ranks.

    A rank is the place of the first passage that holds it (0 = best); the question's own names have rank 0.
    """

    spans: list[str]
    span_ranks: list[int]
    names: list[str]
    name_ranks: list[int]


def names_in(passages: Sequence[Passage], question: str) -> Names:
    """Collect the names of a question and of the first MAX_SOURCES passages, best first."""
    spans: dict[str, int] = dict.fromkeys(title_spans(question, any_case=True), 0)
    names: dict[str, int] = {}
    for rank, passage in enumerate(passages[:MAX_SOURCES]):
        text = f"{passage.title.raw}\n{passage.text.raw}".replace("\x00", " ")
        for span in title_spans(text):
            spans.setdefault(span, rank)
        for name in strong_names(text):
            names.setdefault(name, rank)
    return Names(
        list(spans)[:MAX_SPANS],
        list(spans.values())[:MAX_SPANS],
        list(names)[:MAX_NAMES],
        list(names.values())[:MAX_NAMES],
    )


def link_score(similarity: float, strength: float, rank: int) -> float:
    """Return the score of a linked chunk, 0-1: its cosine similarity (-1..1) and the strength and rank of its link."""
    share = LINK_SHARE * strength / (2 + rank)
    return min(1.0, max(0.0, (max(similarity, 0.0) + share) / (1.0 + LINK_SHARE / 2)))


@lru_cache(maxsize=256)
def titles_sql(generation_id: int, dimensions: int, distance: Distance, clause: str) -> str:
    """Return the look-up of chunks whose document's title is one of `spans`, nearest to the vector first.

    Parameters: spans (lower case or not), vector, limit and the clause's. Rows: (chunk_key, distance).
    """
    return f"""
select c.chunk_key, c.embedding::halfvec({dimensions}) {distance.operator} %(vector)b::halfvec({dimensions}) as distance
from (select distinct title_key(span) as key from unnest(%(spans)b::text[]) span) wanted
cross join lateral (
    select d.document_key from document d where title_key(d.title) = wanted.key and {clause} limit {MAX_TITLES}
) titled  -- a limit within keeps the planner from hashing every title of the collection
join chunk c on c.generation_id = {generation_id} and c.document_key = titled.document_key
where c.verdict <> 'quarantine'
order by 2, 1
limit %(limit)s
"""  # noqa: S608 - integers, an operator of the enumeration, and a clause made of constants and placeholders


@lru_cache(maxsize=256)
def links_sql(generation_id: int, dimensions: int, distance: Distance, clause: str) -> str:
    """Return the look-up of all three kinds of link.

    Parameters: spans, span_ranks, names, name_ranks, documents (ids of the sources, which are no links of their own),
    text_config, vector and the clause's. Rows: (chunk_key, distance, strength, rank), the best link of each chunk.
    """
    return f"""
with titled as (
    select found.document_key, {TITLE}::float8 as strength, min(wanted.rank) as rank
    from (
        select title_key(span) as key, min(rank) as rank
        from unnest(%(spans)s::text[], %(span_ranks)s::int[]) s(span, rank)
        group by 1
    ) wanted
    cross join lateral (
        select d.document_key from document d where title_key(d.title) = wanted.key and {clause} limit {MAX_TITLES}
    ) found
    group by found.document_key
), in_title as (
    select found.document_key, {IN_TITLE}::float8 as strength, min(wanted.rank) as rank
    from unnest(%(names)s::text[], %(name_ranks)s::int[]) wanted(name, rank)
    cross join lateral (
        select d.document_key, count(*) over () as sharing
        from (
            select d.* from document d
            where to_tsvector('simple', d.title) @@ phraseto_tsquery('simple', wanted.name) and {clause}
            limit {MAX_TITLES} + 1
        ) d
    ) found
    where found.sharing <= {MAX_TITLES}
    group by found.document_key
), mentioned as (
    select found.chunk_key, {MENTION}::float8 as strength, min(wanted.rank) as rank
    from (
        select rank, lexemes from unnest(%(names)s::text[], %(name_ranks)s::int[]) n(name, rank)
        cross join lateral (
            select array_agg(lexeme order by held) as lexemes, min(held) as fewest
            from unnest(to_tsvector(%(text_config)s::regconfig, n.name))
            cross join lateral (
                select count(*) as held from (
                    select from posting p where p.generation_id = {generation_id} and p.term = lexeme
                    limit {MAX_POSTINGS}
                ) capped
            ) counted
        ) analysed
        where fewest < {MAX_POSTINGS}
    ) wanted
    cross join lateral (
        select held.chunk_key, count(*) over () as sharing
        from (
            select p.chunk_key from posting p
            where p.generation_id = {generation_id} and p.term = wanted.lexemes[1]
              and not exists (
                  select from unnest(wanted.lexemes[2:]) other(term)
                  where not exists (
                      select from posting q
                      where q.generation_id = {generation_id} and q.term = other.term and q.chunk_key = p.chunk_key
                  )
              )
            limit {MAX_MENTIONS} + 1
        ) held
    ) found
    where found.sharing <= {MAX_MENTIONS}
    group by found.chunk_key
), linked as (
    select nearest.chunk_key, whole.strength, whole.rank
    from (select * from titled union all select * from in_title) whole
    cross join lateral (
        select c.chunk_key from chunk c
        where c.generation_id = {generation_id} and c.document_key = whole.document_key
        order by (c.embedding::halfvec({dimensions}) {distance.operator} %(vector)b::halfvec({dimensions})) + 0
        limit {CHUNKS_OF_A_DOCUMENT}
    ) nearest
    union all
    select chunk_key, strength, rank from mentioned
)
select distinct on (linked.chunk_key) linked.chunk_key, target.distance, linked.strength, linked.rank
from linked
cross join lateral (
    select c.embedding::halfvec({dimensions}) {distance.operator} %(vector)b::halfvec({dimensions}) as distance
    from chunk c
    join document d on d.document_key = c.document_key
    where c.generation_id = {generation_id} and c.chunk_key = linked.chunk_key
      and {clause} and c.verdict <> 'quarantine' and d.document_id <> all(%(documents)s::text[])
    limit 1
) target
order by linked.chunk_key, linked.strength / (2 + linked.rank) desc
"""  # noqa: S608 - as above, and constants of this module
