"""The statements of a search in a foreign table: the nearest rows, and rows with the words.

Prevents the filter that silently returns fewer rows: an index scan may stop before a filter has let enough through, so
a short scan is followed by the exact one (see retriever). Names come from the catalogue and are quoted, all else are
parameters. Nothing is prepared on the server: with its values in sight the planner can use a partial index, and a
pooler may stand in between.

Sources: pgvector's README on iterative scans; Robertson, Zaragoza, "The probabilistic relevance framework: BM25 and
beyond", 2009. PostgreSQL's ts_rank knows no document frequencies, so it is taken term by term and weighted with them.
For one term it is 0.0608 at the first occurrence and grows to 1.64 times that: scaled to 1 at the first, it is BM25's
saturation without its length.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from psycopg import sql

from standard.foreign.conditions import column_sql
from standard.foreign.quoting import Constant, Name

if TYPE_CHECKING:
    from standard.foreign.choice import Lexical
    from standard.foreign.conditions import Condition
    from standard.foreign.view import TableView

_ONE_OCCURRENCE = 0.06079271


def nearest_sql(
    view: TableView, condition: Condition, ef_search: int, max_scan_tuples: int, *, exact: bool = False
) -> sql.Composed:
    """Return the nearest rows: (id, distance, cosine similarity), nearest first. Parameters: vector, depth and more."""
    distance = sql.SQL("{} {} {}").format(view.vector, view.operator(), view.query)
    cosine = sql.SQL("1 - ({} {} {})").format(view.vector, view.operator("cosine"), view.query)
    order = sql.SQL("({}) + 0").format(distance) if exact or view.index is None else distance
    scan = sql.SQL(
        "select {id}::text as id, {distance} as distance, {cosine} as cosine from {table} t"
        " where {condition} and {guard} order by {order} limit {depth}"
    ).format(
        id=column_sql(view.mapping.id),
        distance=distance,
        cosine=cosine,
        table=view.table.relation,
        condition=condition.clause,
        guard=view.guard,
        order=order,
        depth=sql.Placeholder("depth"),
    )
    if exact or view.index is None:
        return sql.SQL("select id, distance, cosine from ({}) nearest order by distance + 0, id").format(scan)
    settings = sql.SQL(", ").join(
        sql.SQL("set_config({}, {}, true) as {}").format(Constant(name), Constant(value), Name(name.partition(".")[2]))
        for name, value in scan_settings(view, ef_search, max_scan_tuples)
    )
    # the settings are made inside the statement, local to its transaction, and before the scan begins
    return sql.SQL(
        "with setting as materialized (select {settings}), nearest as materialized ("
        "select found.* from setting cross join lateral ("
        "select * from ({scan}) scanned where setting is not null) found)"
        " select id, distance, cosine from nearest order by distance + 0, id"
    ).format(settings=settings, scan=scan)


def scan_settings(view: TableView, ef_search: int, max_scan_tuples: int) -> list[tuple[str, str]]:
    """Settings of the index scan, as this pgvector knows them."""
    if view.index is None:
        return []
    if view.index.method == "ivfflat":
        settings = [("ivfflat.probes", str(max(10, math.isqrt(view.index.lists) + 1)))]
        return settings + ([("ivfflat.iterative_scan", "relaxed_order")] if view.iterative else [])
    settings = [("hnsw.ef_search", str(min(max(ef_search, 1), 1000)))]
    if view.iterative:
        settings += [("hnsw.iterative_scan", "relaxed_order"), ("hnsw.max_scan_tuples", str(max_scan_tuples))]
    return settings


def _searched(lexical: Lexical) -> sql.Composable:
    """The tsvector of a row, built as the index has it."""
    column = column_sql(lexical.column)
    if lexical.kind == "tsvector":
        return column
    text = sql.SQL("coalesce({}, '')").format(column) if lexical.coalesced else column
    return sql.SQL("to_tsvector({}::regconfig, {})").format(Constant(lexical.config), text)


def matches(lexical: Lexical, query: sql.Composable) -> sql.Composed:
    """A condition: the row has the term of `query`."""
    if lexical.kind == "trigram":
        return sql.SQL("{} ilike {}").format(column_sql(lexical.column), query)
    return sql.SQL("{} @@ {}::tsquery").format(_searched(lexical), query)


def words_sql(view: TableView, lexical: Lexical, condition: Condition) -> sql.Composed:
    """Return the rows that hold a leading term, by the sum of all terms' idf and rank: (id, score), best first.

    Parameters: leading (a tsquery, or patterns), queries and weights (parallel arrays of all terms), depth and those
    of the condition.
    """
    if lexical.kind == "trigram":
        words: sql.Composable = column_sql(lexical.column)
        found = sql.SQL("{} ilike any({}::text[])").format(words, sql.Placeholder("leading"))
        rank: sql.Composable = sql.SQL("(held.words ilike term.query)::int")
    else:
        words = _searched(lexical)
        found = sql.SQL("{} @@ {}::tsquery").format(words, sql.Placeholder("leading"))
        rank = sql.SQL("ts_rank(held.words, term.query::tsquery) / {}").format(Constant(_ONE_OCCURRENCE))
    # offset 0: what a row is ranked by is made once a row, not once a term
    return sql.SQL(
        "select held.id::text, (select sum(term.weight * {rank})"
        " from unnest({queries}::text[], {weights}::float8[]) term(query, weight))::float8 as score"
        " from (select {id} as id, {words} as words from {table} t where {condition} and {found} offset 0) held"
        " order by score desc, 1 limit {depth}"
    ).format(
        id=column_sql(view.mapping.id),
        words=words,
        rank=rank,
        queries=sql.Placeholder("queries"),
        weights=sql.Placeholder("weights"),
        table=view.table.relation,
        condition=condition.clause,
        found=found,
        depth=sql.Placeholder("depth"),
    )


def holds_all_sql(view: TableView, lexical: Lexical, condition: Condition) -> sql.Composed:
    """Return those of the parameter `names` (text[]) whose words all stand in one row that meets the condition."""
    return sql.SQL(
        "select name from (select name, plainto_tsquery({config}::regconfig, name) as query"
        " from unnest({names}::text[]) each(name)) wanted"
        " where numnode(query) = 0 or exists (select from {table} t where {condition} and {searched} @@ query)"
    ).format(
        config=Constant(lexical.config),
        names=sql.Placeholder("names"),
        table=view.table.relation,
        condition=condition.clause,
        searched=_searched(lexical),
    )
