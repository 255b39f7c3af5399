"""The lexical leg: BM25 with real inverse document frequencies, in plain SQL over the table `posting`.

The question goes through the same text search configuration as the chunks, so both are analysed alike. Document
frequencies are counted over the whole generation, before any filter: what a term is worth does not depend on who asks.

Frequent terms are not walked through where rarer ones exist: terms are taken rarest first until `posting_budget`
postings are read (the leading terms); the best `shortlist` chunks by these are then scored in full. A chunk that
holds only frequent terms may be missed, which is what little they are worth; the rarest term is always read whole. A
search within few documents reads everything.

Source: Robertson, Zaragoza, "The probabilistic relevance framework: BM25 and beyond", 2009; idf as in Lucene,
ln(1 + (N - df + 0.5) / (df + 0.5)), never negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

K1 = 1.2
B = 0.75
MAX_TERMS = 128
"""Distinct lexemes of a question that are looked up, the first in its text."""


class Within(Enum):
    """How a search is held to the documents it may see."""

    ALL = auto()
    """Every document of the generation; quarantined chunks come along and are dropped where the text is read."""
    SOME = auto()
    """Ranked first, then each chunk is tested until enough have passed: for filters that let many pass."""
    FEW = auto()
    """The allowed chunks are listed first and all their postings scored: for filters that let few pass."""


@dataclass(frozen=True, slots=True)
class LexicalHits:
    """Chunks with their BM25 scores, best first; idf of all lexemes of the question; chunks of the generation."""

    keys: list[int]
    scores: list[float]
    term_idf: dict[str, float]
    corpus_size: int


def hits(row: tuple[list[int] | None, list[float] | None, list[str] | None, list[float] | None, int]) -> LexicalHits:
    """Read the one row of the statement below."""
    keys, scores, terms, idf, corpus_size = row
    return LexicalHits(keys or [], scores or [], dict(zip(terms or [], idf or [], strict=True)), corpus_size)


@lru_cache(maxsize=512)
def bm25_sql(generation_id: int, clause: str, within: Within) -> str:
    """Return the search. `clause` is a condition over `d` (document); it may be empty for Within.ALL only.

    Parameters: text, text_config, depth, shortlist, posting_budget and the clause's. One row: chunk keys and scores,
    terms and their idf (two pairs of arrays), and the number of chunks in the generation.
    """
    allowed, only_allowed, passes, leading = "", "", "", "sum(df) over (order by df, term) - df < %(posting_budget)s"
    if within is Within.FEW:
        leading = "true"
        only_allowed = "join allowed on allowed.chunk_key = p.chunk_key"
        allowed = f"""
), allowed as materialized (
    select c.chunk_key
    from document d
    join chunk c on c.generation_id = {generation_id} and c.document_key = d.document_key
    where {clause} and c.verdict <> 'quarantine'"""  # noqa: S608 - as below
    elif within is Within.SOME:
        passes = f"""
    where (
        select c.verdict <> 'quarantine' and {clause}
        from chunk c join document d on d.document_key = c.document_key
        where c.generation_id = {generation_id} and c.chunk_key = scored.chunk_key
    )"""  # noqa: S608 - as below
    score = "sum(w.weight * p.frequency / (p.frequency + w.flat + w.per_position * {length}))"
    return f"""
with term as materialized (
    select lexeme as term, cardinality(positions)::float8 as weight
    from unnest(to_tsvector(%(text_config)s::regconfig, %(text)s))
    order by positions[1], lexeme
    limit {MAX_TERMS}
), counted as materialized (
    select term, weight,
        (select count(*) from posting p where p.generation_id = {generation_id} and p.term = term.term)::float8 as df
    from term
), corpus as materialized (
    select chunk_count::float8 as chunks, lexical_total::float8 / greatest(chunk_count, 1) as mean_length
    from generation where generation_id = {generation_id}
), valued as materialized (
    select term, weight, df,
        ln(1::float8 + (greatest(chunks - df, 0::float8) + 0.5::float8) / (df + 0.5::float8)) as idf,
        {K1 * (1 - B)}::float8 as flat, {K1 * B}::float8 / greatest(mean_length, 1::float8) as per_position
    from counted cross join corpus
), weighted as materialized (
    select term, weight * idf * {K1 + 1}::float8 as weight, flat, per_position, {leading} as leading
    from valued where df > 0{allowed}
), scored as (
    select p.chunk_key, min(p.length)::float8 as length, {score.format(length="p.length")} as score
    from weighted w
    join posting p on p.generation_id = {generation_id} and p.term = w.term
    {only_allowed}
    where w.leading
    group by p.chunk_key
    order by score desc, p.chunk_key
    offset 0
), shortlisted as materialized (
    select chunk_key, length, score from scored{passes}
    limit %(shortlist)s
), ranked as materialized (
    select chunk_key, score + coalesce((
        select {score.format(length="shortlisted.length")}
        from weighted w
        join posting p on p.generation_id = {generation_id} and p.term = w.term and p.chunk_key = shortlisted.chunk_key
        where not w.leading
    ), 0::float8) as score
    from shortlisted
    order by score desc, chunk_key
    limit %(depth)s
)
select (select array_agg(chunk_key order by score desc, chunk_key) from ranked),
    (select array_agg(score order by score desc, chunk_key) from ranked),
    (select array_agg(term order by term) from valued),
    (select array_agg(idf order by term) from valued),
    (select chunks::bigint from corpus)
"""  # noqa: S608 - integers, constants, and a clause made of constants and placeholders
