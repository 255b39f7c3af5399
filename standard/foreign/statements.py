"""The statements of a search in a foreign table: nearest rows, rows with the words, and the rows themselves.

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

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from standard.foreign.conditions import column_sql, json_of, text_of
from standard.foreign.mapping import Field
from standard.foreign.quoting import Constant, Name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from standard.foreign.conditions import Condition
    from standard.foreign.view import Lexical, TableView

MAX_TERMS = 32
"""Distinct terms of a question that are looked up."""
COUNTED_POSTINGS = 5_000
"""A term's rows are counted up to here, and terms are taken rarest first until so many rows are read."""
MOST_RANKED = 50_000
"""A question whose rarest term stands in more rows says nothing that words could rank."""
LONGEST_TEXT = 32_000
"""Code points of a passage that are read."""
LONGEST_METADATA = 65_536
"""Code points of metadata that are read; longer ones are left out."""
_ONE_OCCURRENCE = 0.06079271
_HIDDEN_METADATA = ("_node_content", "_node_type")
_WORD = re.compile(r"\w{3,}")


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a question and its document frequency; `query` finds it: a tsquery, or a pattern of ILIKE."""

    text: str
    query: str
    weight: float
    frequency: float

    def idf(self, corpus_size: int) -> float:
        """Inverse document frequency, never negative."""
        there = min(self.frequency, float(corpus_size))
        return math.log(1.0 + (corpus_size - there + 0.5) / (there + 0.5))


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


def _matches(lexical: Lexical, query: sql.Composable) -> sql.Composed:
    if lexical.kind == "trigram":
        return sql.SQL("{} ilike {}").format(column_sql(lexical.column), query)
    return sql.SQL("{} @@ {}::tsquery").format(_searched(lexical), query)


def terms_sql(view: TableView, lexical: Lexical) -> sql.Composed:
    """Return a question's terms: (text, query, weight, rows that have it up to a bound, None for a common one).

    Parameters: text, common (text[]) and those of the table's fixed condition; for trigrams words (text[]).
    """
    config = Constant(lexical.config)
    if lexical.kind == "trigram":
        terms = sql.SQL(
            "select word as term, '%%' || replace(word, '_', '\\_') || '%%' as query, 1::float8 as weight, place"
            " from unnest({}::text[]) with ordinality words(word, place)"
            " where to_tsvector({}::regconfig, word) <> ''::tsvector"
        ).format(sql.Placeholder("words"), config)
    else:
        terms = sql.SQL(
            "select lexeme as term, '''' || replace(replace(lexeme, '\\', '\\\\'), '''', '''''') || '''' as query,"
            " cardinality(positions)::float8 as weight, positions[1] as place"
            " from unnest(to_tsvector({}::regconfig, {}))"
        ).format(config, sql.Placeholder("text"))
    return sql.SQL(
        "with term as materialized (select * from ({terms}) each order by place, term limit {most})"
        " select term, query, weight, case when not term = any({common}::text[]) then ("
        "select count(*) from (select from {table} t where {fixed} and {matches} limit {counted}) held) end from term"
    ).format(
        terms=terms,
        most=Constant(MAX_TERMS),
        common=sql.Placeholder("common"),
        table=view.table.relation,
        fixed=view.fixed.clause,
        matches=_matches(lexical, sql.SQL("term.query")),
        counted=Constant(COUNTED_POSTINGS + 1),
    )


def trigram_words(text: str) -> list[str]:
    """Words of a question that trigrams can find, each once."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))[: 2 * MAX_TERMS]


def leading(terms: Sequence[Term]) -> list[Term]:
    """Return the terms whose rows are read: the rarest first, until COUNTED_POSTINGS rows; always the rarest."""
    held = sorted((term for term in terms if term.frequency > 0), key=lambda term: (term.frequency, term.text))
    if not held or held[0].frequency > MOST_RANKED:
        return []
    chosen, read = [held[0]], held[0].frequency
    for term in held[1:]:
        read += term.frequency
        if read > COUNTED_POSTINGS:
            break
        chosen.append(term)
    return chosen


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


def rows_sql(view: TableView, condition: Condition, *, embeddings: bool) -> sql.Composed:
    """Return rows by the parameter `keys` that meet the condition, whatever the leg that found them believed.

    (id, text, four text[]: what is tried for document id, title, uri and position, metadata as json text, other columns
    as jsonb, embedding as bytes). What stands in a json column of metadata is null in the arrays: see `first_of`.
    """
    mapping = view.mapping
    return sql.SQL(
        "select {id}::text, left({content}::text, {longest}), {document}, {title}, {uri}, {position}, {metadata},"
        " {others}, {embedding} from {table} t where {matching} and {condition}"
    ).format(
        id=column_sql(mapping.id),
        content=column_sql(mapping.content),
        longest=Constant(LONGEST_TEXT),
        document=_tried(view, mapping.document_id),
        title=_tried(view, mapping.title),
        uri=_tried(view, mapping.uri),
        position=_tried(view, mapping.position),
        metadata=_metadata(view),
        others=_others(view),
        embedding=_bytes(view) if embeddings else sql.SQL("null::bytea"),
        table=view.table.relation,
        matching=view.matching_id,
        condition=condition.clause,
    )


def in_json_text(view: TableView, wanted: Field) -> bool:
    """Whether a field lies in a json column of metadata, whose text is read anyway.

    PostgreSQL itself would refuse the whole statement for one row with a NUL or half a surrogate pair in such a column.
    """
    return (
        bool(wanted.path)
        and wanted.column == view.mapping.metadata
        and view.table.columns[wanted.column].type == "json"
    )


def _tried(view: TableView, fields: Sequence[Field]) -> sql.Composable:
    if not fields:
        return sql.SQL("null::text[]")
    columns = view.table.columns
    return sql.SQL("array[{}]::text[]").format(
        sql.SQL(", ").join(sql.SQL("null") if in_json_text(view, each) else text_of(each, columns) for each in fields)
    )


def first_of(
    view: TableView, fields: Sequence[Field], tried: Sequence[str | None] | None, metadata: Mapping[str, object]
) -> str:
    """The first of some fields that holds something, from what rows_sql gave; "" for none."""
    for each, text in zip(fields, tried or (), strict=False):
        if not in_json_text(view, each):
            found: object = text
        else:
            found = metadata
            for key in each.path:
                found = found.get(key) if isinstance(found, dict) else None
        if found not in (None, "") and not isinstance(found, dict | list):
            return str(found)
    return ""


def _metadata(view: TableView) -> sql.Composable:
    name = view.mapping.metadata
    if not name:
        return sql.SQL("null::text")
    column = column_sql(name)
    if view.table.columns[name].type == "jsonb":
        hidden = sql.SQL(", ").join(Constant(each) for each in _HIDDEN_METADATA)
        column = sql.SQL("case when jsonb_typeof({0}) = 'object' then {0} - array[{1}]::text[] end").format(
            column, hidden
        )
    return sql.SQL("left(({})::text, {})").format(column, Constant(LONGEST_METADATA))


def _others(view: TableView) -> sql.Composable:
    """Columns that are filtered by, as they belong to the metadata that a reader sees."""
    if not view.mapping.filters:
        return sql.SQL("null::jsonb")
    pairs = sql.SQL(", ").join(
        sql.SQL("{}, {}").format(Constant(key), json_of(Field(column), view.table.columns))
        for key, column in view.mapping.filters.items()
    )
    return sql.SQL("jsonb_build_object({})").format(pairs)


def _bytes(view: TableView) -> sql.Composed:
    send = f"{view.table.columns[view.mapping.embedding].type}_send"
    return sql.SQL("{}({})").format(Name(view.table.extension_schema, send), column_sql(view.mapping.embedding))


_UNREADABLE = re.compile("[\x00\ud800-\udfff]")


def _readable(value: Any) -> Any:  # noqa: ANN401 - a value of JSON
    """The value with U+FFFD in the place of what no text on the wire can hold."""
    match value:
        case str():
            return _UNREADABLE.sub("\N{REPLACEMENT CHARACTER}", value)
        case dict():
            return {_readable(key): _readable(each) for key, each in value.items()}
        case list():
            return [_readable(each) for each in value]
        case _:
            return value


def shown_metadata(metadata: str | None, others: Mapping[str, object] | None) -> dict[str, object]:
    """Return a row's metadata; what is no object, or was too long to read, is left out."""
    try:
        found = json.loads(metadata) if metadata else {}
    except ValueError:
        found = {}
    held = found if isinstance(found, dict) else {}
    if metadata is not None and "\\u" in metadata:
        held = _readable(held)
    held = {key: value for key, value in held.items() if key not in _HIDDEN_METADATA}
    return held | {key: value for key, value in (others or {}).items() if value is not None}


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
