"""The dense leg: nearest chunks by embedding, from the HNSW index or exactly.

Prevents the filter that silently returns fewer rows: an HNSW scan with a filter stops after `hnsw.max_scan_tuples`, and
what it has by then may be short of what there is. A short scan is therefore never the end (see retriever): the exact
scan over the rows the filter allows follows.

One statement, one round trip: the settings of the index scan are made inside it, local to its transaction, so they
hold behind a pooler and leave no trace. The generation is a literal, so that the planner sees one partition and its
index; names of indexes and operators come from the catalogue, all else are parameters.

Source: pgvector's README on iterative index scans; with relaxed order the rows must be sorted again, and "+ 0" keeps
the planner from taking the scan for sorted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from standard.retrieval.directory import Distance


@lru_cache(maxsize=512)
def scan_sql(generation_id: int, dimensions: int, distance: Distance, clause: str) -> str:
    """Return the search through the index; without an index the planner makes it an exact one.

    `clause` is a condition over `d` (document), tested row by row as the scan goes, or empty. Parameters: vector,
    depth, ef_search, max_scan_tuples and the clause's. Rows: (chunk_key, distance), nearest first.
    """
    embedding = f"c.embedding::halfvec({dimensions})"
    query = f"%(vector)b::halfvec({dimensions})"
    # a scalar subquery cannot be turned into a join, so the scan stays ordered and stops at its limit
    condition = f"and (select {clause} from document d where d.document_key = c.document_key)"  # noqa: S608 - as below
    allowed = condition if clause else ""
    return f"""
with setting as materialized (
    select set_config('hnsw.ef_search', %(ef_search)s, true) as ef_search,
        set_config('hnsw.iterative_scan', 'relaxed_order', true) as iterative_scan,
        set_config('hnsw.max_scan_tuples', %(max_scan_tuples)s, true) as max_scan_tuples
), nearest as materialized (
    select found.chunk_key, found.distance
    from setting
    cross join lateral (
        select c.chunk_key, {embedding} {distance.operator} {query} as distance
        from chunk c
        where c.generation_id = {generation_id} and c.verdict <> 'quarantine'
          and setting.ef_search is not null  -- settings first, then the scan
          {allowed}
        order by {embedding} {distance.operator} {query}
        limit %(depth)s
    ) found
)
select chunk_key, distance from nearest order by distance + 0, chunk_key
"""  # noqa: S608 - integers, an operator of the enumeration, and a clause made of constants and placeholders


@lru_cache(maxsize=512)
def exact_sql(generation_id: int, dimensions: int, distance: Distance, clause: str) -> str:
    """Return the exact search over the documents that `clause` allows. Parameters: vector, depth and the clause's."""
    return f"""
select c.chunk_key, c.embedding::halfvec({dimensions}) {distance.operator} %(vector)b::halfvec({dimensions}) as distance
from document d
join chunk c on c.generation_id = {generation_id} and c.document_key = d.document_key
where {clause} and c.verdict <> 'quarantine'
order by (c.embedding::halfvec({dimensions}) {distance.operator} %(vector)b::halfvec({dimensions})) + 0, c.chunk_key
limit %(depth)s
"""  # noqa: S608 - as above
