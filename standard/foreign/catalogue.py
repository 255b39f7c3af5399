"""What the database's catalogue says of a table: columns, keys, indexes, sizes. Any role may read it, none is locked.

Expressions of indexes are read, never run: a search builds its own from the names found in them, so that nobody who may
make an index on a table can make the gateway run what they wrote into it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from standard.database.migrate import parse_version
from standard.foreign.quoting import Name

if TYPE_CHECKING:
    from standard.database.pool import Connection

VECTOR_TYPES = frozenset({"vector", "halfvec"})
DISTANCES: Mapping[str, tuple[str, str]] = {
    "cosine_ops": ("cosine", "<=>"),
    "ip_ops": ("inner_product", "<#>"),
    "l2_ops": ("l2", "<->"),
}
"""By the end of an operator class's name: the distance and its operator, smaller is nearer."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `type` as format_type prints it without modifier, `category` as in pg_type.typcategory.

    `dimensions` is that of a vector type, None where the type does not say; `generated` the expression of a generated
    column; `null_share` (0-1) and `common` (lexemes of a tsvector and their share of rows) are of the last ANALYZE,
    None and {} where there was none.
    """

    name: str
    type: str
    category: str
    dimensions: int | None = None
    not_null: bool = False
    generated: str = ""
    null_share: float | None = None
    common: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """An index that can order by distance: on the column as it is, or cast to `cast` (type, dimensions).

    `lists` is of an IVFFlat index, else 0. `predicate` is that of a partial index, as SQL, for reading only.
    """

    name: str
    method: str
    operator_class: str
    column: str
    cast: tuple[str, int] | None = None
    predicate: str = ""
    lists: int = 0

    @property
    def distance(self) -> tuple[str, str] | None:
        """Name and operator; None for a class that no distance here uses (L1, bits)."""
        return next((value for end, value in DISTANCES.items() if self.operator_class.endswith(f"_{end}")), None)


@dataclass(frozen=True, slots=True)
class TextIndex:
    """An index that words can be looked up in.

    `kind`: tsvector (a column of that type), expression (to_tsvector(config, column), with `coalesced` wrapped in
    coalesce(column, '')), trigram (a column's trigrams).
    """

    name: str
    kind: str
    column: str
    config: str = ""
    coalesced: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view. `rows` is the planner's estimate, -1 before the first ANALYZE; `bytes` without its indexes.

    `pgvector` is the extension's version and `extension_schema` where its types live. `readable`: this role may select.
    """

    oid: int
    schema: str
    name: str
    kind: str
    columns: Mapping[str, Column]
    primary_key: str
    vector_indexes: tuple[VectorIndex, ...]
    text_indexes: tuple[TextIndex, ...]
    rows: int
    bytes: int
    pgvector: tuple[int, ...]
    extension_schema: str
    text_config: str
    readable: bool = True

    @property
    def relation(self) -> Name:
        """The name, quoted."""
        return Name(self.schema, self.name)

    @property
    def full_name(self) -> str:
        """The name for people."""
        return f"{self.schema}.{self.name}"

    @property
    def vector_columns(self) -> tuple[str, ...]:
        """Columns that hold embeddings, in the table's order."""
        return tuple(column.name for column in self.columns.values() if column.type in VECTOR_TYPES)


_TABLE = """
select c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.reltuples::bigint, pg_table_size(c.oid),
    has_schema_privilege(n.oid, 'usage') and has_any_column_privilege(c.oid, 'select'),
    (select e.extversion from pg_extension e where e.extname = 'vector'),
    (select s.nspname from pg_extension e join pg_namespace s on s.oid = e.extnamespace where e.extname = 'vector'),
    current_setting('default_text_search_config')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = %(oid)s
"""
_FIND = """
select c.oid::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relname = %(table)s and c.relkind in ('r', 'p', 'v', 'm', 'f')
    and case when %(schema)s = '' then pg_table_is_visible(c.oid) else n.nspname = %(schema)s end
"""
_COLUMNS = """
select a.attname, t.typname, t.typcategory::text, a.atttypmod, a.attnotnull,
    case when a.attgenerated = 's' then pg_get_expr(d.adbin, d.adrelid) else '' end,
    s.null_frac, s.most_common_elems::text::text[], s.most_common_elem_freqs,
    has_column_privilege(a.attrelid, a.attnum, 'select')
from pg_attribute a
join pg_type t on t.oid = a.atttypid
join pg_class c on c.oid = a.attrelid
join pg_namespace n on n.oid = c.relnamespace
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
left join lateral (
    select * from pg_stats s
    where s.schemaname = n.nspname and s.tablename = c.relname and s.attname = a.attname
    order by s.inherited desc limit 1
) s on true
where a.attrelid = %(oid)s and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
_INDEXES = """
select k.relname, m.amname, o.opcname, a.attname, pg_get_indexdef(i.indexrelid, 1, true),
    coalesce(pg_get_expr(i.indpred, i.indrelid), ''), k.reloptions, i.indisprimary, i.indnkeyatts
from pg_index i
join pg_class k on k.oid = i.indexrelid
join pg_am m on m.oid = k.relam
join pg_opclass o on o.oid = i.indclass[0]
left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0] and i.indkey[0] > 0
where i.indrelid = %(oid)s and i.indisvalid and i.indisready
order by k.relname
"""

_NAME = r'(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>\w+))'
_CAST = re.compile(rf"\(*{_NAME}\)?::(?:[\w\"]+\.)?(?P<type>vector|halfvec)\((?P<dimensions>\d+)\)\)*")
_TO_TSVECTOR = re.compile(
    rf"\(*to_tsvector\('(?P<config>[\w.]+)'::regconfig, "
    rf"(?P<coalesce>coalesce\()?\(?{_NAME}\)?(?:::(?:text|character varying))?"
    r"(?(coalesce), ''::[a-z ]+\))\)+(?:::text)?\)*",
    re.IGNORECASE,
)
_CONFIG = re.compile(r"to_tsvector\(\(?'(?P<config>[\w.]+)'", re.IGNORECASE)


def _named(match: re.Match[str]) -> str:
    return match["plain"] or match["quoted"].replace('""', '"')


def read_vector_index(
    name: str, method: str, operator_class: str, column: str | None, definition: str, predicate: str, lists: int
) -> VectorIndex | None:
    """Read an index from what the catalogue prints of it; None for an expression that is no cast of a column."""
    if column is not None:
        return VectorIndex(name, method, operator_class, column, None, predicate, lists)
    match = _CAST.fullmatch(definition)
    if match is None:
        return None
    return VectorIndex(
        name, method, operator_class, _named(match), (match["type"], int(match["dimensions"])), predicate, lists
    )


def read_text_index(name: str, operator_class: str, column: str | None, definition: str) -> TextIndex | None:
    """Read a GIN or GiST index from what the catalogue prints of it; None where it holds no words."""
    if column is not None:
        if operator_class in {"gin_trgm_ops", "gist_trgm_ops"}:
            return TextIndex(name, "trigram", column)
        return TextIndex(name, "tsvector", column) if operator_class == "tsvector_ops" else None
    match = _TO_TSVECTOR.fullmatch(definition)
    if match is None:
        return None
    return TextIndex(name, "expression", _named(match), match["config"], coalesced=match["coalesce"] is not None)


def config_of(expression: str) -> str:
    """The text search configuration that a generated tsvector column was made with; "" where it cannot be seen."""
    match = _CONFIG.search(expression)
    return match["config"] if match else ""


async def find_table(conn: Connection, schema: str, table: str) -> Table | None:
    """Read what the catalogue says of a table; None where there is none of that name (in the search path)."""
    cursor = await conn.execute(_FIND.encode(), {"schema": schema, "table": table}, prepare=False)
    row = await cursor.fetchone()
    return None if row is None else await read_table(conn, row[0])


async def read_table(conn: Connection, oid: int) -> Table | None:
    """Read what the catalogue says of the relation with this oid; None where it is gone."""
    wanted = {"oid": oid}
    row = await (await conn.execute(_TABLE.encode(), wanted, prepare=False)).fetchone()
    if row is None:
        return None
    columns = await (await conn.execute(_COLUMNS.encode(), wanted, prepare=False)).fetchall()
    indexes = await (await conn.execute(_INDEXES.encode(), wanted, prepare=False)).fetchall()
    _, schema, name, kind, rows, size, readable, version, extension_schema, text_config = row
    vector_indexes: list[VectorIndex] = []
    text_indexes: list[TextIndex] = []
    primary_key = ""
    for index, method, operator_class, column, definition, predicate, options, primary, keys in indexes:
        if primary and keys == 1 and column is not None:
            primary_key = column
        if method in {"hnsw", "ivfflat"}:
            lists = int(dict(each.split("=", 1) for each in options or ()).get("lists", 100))
            of_lists = lists if method == "ivfflat" else 0
            found = read_vector_index(index, method, operator_class, column, definition, predicate, of_lists)
            vector_indexes += [found] if found else []
        elif method in {"gin", "gist"} and not predicate:
            words = read_text_index(index, operator_class, column, definition)
            text_indexes += [words] if words else []
    return Table(
        oid=oid,
        schema=schema,
        name=name,
        kind=kind,
        columns={each[0]: _column(each) for each in columns if each[9]},
        primary_key=primary_key,
        vector_indexes=tuple(vector_indexes),
        text_indexes=tuple(text_indexes),
        rows=rows,
        bytes=size,
        pgvector=parse_version(version or ""),
        extension_schema=extension_schema or "",
        text_config=text_config,
        readable=readable,
    )


def _column(row: tuple[Any, ...]) -> Column:
    name, kind, category, modifier, not_null, generated, null_share, elements, shares, _ = row
    return Column(
        name=name,
        type=kind,
        category=category,
        dimensions=modifier if kind in VECTOR_TYPES and modifier > 0 else None,
        not_null=not_null,
        generated=generated or "",
        null_share=null_share,
        common=dict(zip(elements or (), shares or (), strict=False)) if kind == "tsvector" else {},
    )
