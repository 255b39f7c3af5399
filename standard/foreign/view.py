"""From a mapping to what a search needs: columns found, the operator taken from the index, lengths and nulls checked.

Prevents the search that answers wrongly without a word: vectors of another model, of another length, rows that no
search can find because they have no embedding, an index that the query's operator cannot use. What is certain to be
wrong is refused with the way out; what merely makes it slower or narrower is a warning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from standard.database.pool import the_row, transaction
from standard.domain.errors import FailedPrecondition
from standard.foreign.catalogue import DISTANCES, VECTOR_TYPES, find_table
from standard.foreign.choice import choose_index, choose_lexical
from standard.foreign.conditions import Condition, column_sql, fixed_condition
from standard.foreign.mapping import with_layout
from standard.foreign.quoting import Constant, Name

if TYPE_CHECKING:
    from standard.database.pool import Connection, Pool
    from standard.foreign.catalogue import Table, VectorIndex
    from standard.foreign.choice import Lexical
    from standard.foreign.mapping import Field, TableMapping

ITERATIVE_PGVECTOR = (0, 8)
"""From here on an index scan with a filter goes on until it has enough."""
COUNTED_ROWS = 20_000
"""Up to so many rows (by the planner's estimate) are counted; of larger tables the estimate is used."""
CHECK_SECONDS = 2.0
"""Longest time of one statement of these checks."""
CHECKED_ROWS = 100_000
"""Up to so many rows are looked through for missing embeddings; of larger tables the last ANALYZE is believed."""
DIMENSION_ROWS = 1_000
"""Rows whose vectors are measured where the column's type does not say how long they are."""
_ID_TYPES = frozenset({"int2", "int4", "int8", "uuid", "text", "varchar", "bpchar"})


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as searches use it. `mapping` is complete. `warnings` are sentences for people.

    `vector` is the embedding as the index has it (perhaps a cast), `operator` orders by `distance`, smaller is nearer;
    `index` is None where search is exact. `guard` keeps rows of another dimension and rows without an embedding out of
    the dense leg. `corpus_size` counts rows, estimated for large tables. `nulls`: some rows have no embedding.
    """

    mapping: TableMapping
    table: Table
    fixed: Condition
    dimensions: int
    distance: str
    index: VectorIndex | None
    guard: sql.Composable
    lexical: Lexical | None
    corpus_size: int
    nulls: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def iterative(self) -> bool:
        """Whether pgvector goes on scanning where a filter drops rows."""
        return self.table.pgvector >= ITERATIVE_PGVECTOR

    @property
    def vector_type(self) -> tuple[str, int]:
        """Type and dimensions in which distances are taken."""
        if self.index is not None and self.index.cast is not None:
            return self.index.cast
        return self.table.columns[self.mapping.embedding].type, self.dimensions

    @property
    def vector(self) -> sql.Composed:
        """The embedding of a row, as the index knows it."""
        column = column_sql(self.mapping.embedding)
        if self.index is None or self.index.cast is None:
            return column
        return sql.SQL("{}::{}").format(column, self._type())

    @property
    def query(self) -> sql.Composed:
        """The query's vector, from the parameter `vector`."""
        return sql.SQL("{}::{}").format(sql.Placeholder("vector"), self._type())

    def _type(self) -> sql.Composed:
        name, dimensions = self.vector_type
        return sql.SQL("{}({})").format(Name(self.table.extension_schema, name), Constant(int(dimensions)))

    def operator(self, distance: str = "") -> sql.Composed:
        """The operator of a distance ("" = the view's), whatever the search path."""
        wanted = distance or self.distance
        sign = next(operator for name, operator in DISTANCES.values() if name == wanted)
        return sql.SQL("operator({}.{})").format(Name(self.table.extension_schema), sql.SQL(sign))

    @property
    def matching_id(self) -> sql.Composed:
        """A condition: the row's id is among the parameter `keys` (text[])."""
        column, kind = column_sql(self.mapping.id), self.table.columns[self.mapping.id].type
        if kind in _ID_TYPES:
            return sql.SQL("{} = any({}::text[]::{}[])").format(column, sql.Placeholder("keys"), sql.SQL(kind))
        return sql.SQL("{}::text = any({}::text[])").format(column, sql.Placeholder("keys"))


async def describe(pool: Pool, mapping: TableMapping, dimensions: int, embedder: str) -> TableView:
    """Look at the table and check it against an embedder's `dimensions`.

    Raises FailedPrecondition where the table cannot be searched as mapped, InvalidInput for a mapping that is wrong in
    itself, DatabaseUnavailable.
    """
    async with transaction(pool, statement_timeout=CHECK_SECONDS) as conn:
        with table_errors(mapping):
            whole, table, fixed, collection_id, lengths = await _opened(conn, mapping)
            check_dimensions(whole, table, lengths, dimensions, embedder)
            nulls = await _has_nulls(conn, whole, table, fixed)
            if nulls and whole.nulls == "refuse":
                raise _refusal(
                    whole,
                    f"rows of {table.full_name} have no embedding ({whole.embedding} is null) and no search by meaning "
                    'could find them; embed them, or set nulls = "skip" to go without',
                )
            size = await _size(conn, table, fixed)
    index, distance, warnings = choose_index(whole, table, dimensions, collection_id)
    lexical, missing = choose_lexical(whole, table)
    warnings += missing
    if table.pgvector < ITERATIVE_PGVECTOR:
        warnings.append(
            f"pgvector {'.'.join(map(str, table.pgvector))} stops an index scan early where a filter drops rows; "
            "such searches are made exact, which takes longer. 0.8 and later need not"
        )
    if nulls:
        warnings.append("rows without an embedding are left out of the search by meaning")
    return TableView(
        mapping=whole,
        table=table,
        fixed=fixed,
        dimensions=dimensions,
        distance=distance,
        index=index,
        guard=_guard(whole, table, index, dimensions, nulls=nulls),
        lexical=lexical,
        corpus_size=size,
        nulls=nulls,
        warnings=tuple(warnings),
    )


async def measure(pool: Pool, mapping: TableMapping) -> tuple[int, ...]:
    """The lengths of a table's vectors, () for an empty table. Raises as `describe` does."""
    async with transaction(pool, statement_timeout=CHECK_SECONDS) as conn:
        with table_errors(mapping):
            return (await _opened(conn, mapping))[-1]


async def _opened(
    conn: Connection, mapping: TableMapping
) -> tuple[TableMapping, Table, Condition, str, tuple[int, ...]]:
    """The complete mapping, its table, what every search of it keeps to, its collection's id, its vectors' lengths."""
    whole = with_layout(mapping)
    table = await find_table(conn, *whole.schema_and_table)
    if table is None:
        raise _refusal(whole, f"there is no table {whole.table!r} in this database (or not in the search path)")
    _check_readable(whole, table)
    whole = resolve_columns(mapping, whole, table)
    collection_id = await collection_id_of(conn, whole, table)
    fixed = fixed_condition(whole, table.columns, collection_id)
    return whole, table, fixed, collection_id, await vector_lengths(conn, whole, table, fixed)


class table_errors:  # noqa: N801 - a context manager, read as a word
    """Turn what PostgreSQL says of a foreign table into a sentence about that table."""

    def __init__(self, mapping: TableMapping) -> None:
        self._mapping = mapping

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        line = str(problem).strip().splitlines()[0] if problem is not None and str(problem).strip() else ""
        match problem:
            case psycopg.errors.InsufficientPrivilege():
                raise _refusal(self._mapping, f"{line}; grant select on it to the role of the URL") from problem
            case (
                psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedColumn() | psycopg.errors.UndefinedFunction()
            ):
                raise _refusal(
                    self._mapping, f"the table is not what it was ({line}); correct the mapping, or bring it back"
                ) from problem
            case psycopg.DataError():
                raise _refusal(self._mapping, f"a value in it cannot be used as the mapping says ({line})") from problem
            case _:
                return


def _refusal(mapping: TableMapping, problem: str) -> FailedPrecondition:
    return FailedPrecondition(f"tables.{mapping.name}: {problem}")


def _check_readable(mapping: TableMapping, table: Table) -> None:
    if not table.readable:
        raise _refusal(mapping, f"this role may not read {table.full_name}; grant usage on its schema and select on it")
    if not table.extension_schema:
        raise _refusal(mapping, "this database has no pgvector; there can be no embeddings in it")


def resolve_columns(given: TableMapping, whole: TableMapping, table: Table) -> TableMapping:
    """Find what the mapping leaves to the catalogue, and check that what it names is there.

    What only the layout names may be missing: its libraries leave out what is not used. Raises FailedPrecondition.
    """
    columns = table.columns
    embedding = whole.embedding or _only_vector_column(whole, table)
    identity = whole.id or table.primary_key
    if not identity:
        raise _refusal(whole, f"{table.full_name} has no primary key of one column; name a unique column as id")
    if not whole.content:
        raise _refusal(whole, f"content is empty; name the column that holds the text, of: {', '.join(columns)}")
    filters = dict(whole.filters)
    if whole.layout == "langchain-pgvectorstore":  # metadata that it was told to keep in columns of their own
        taken = {identity, whole.content, embedding, whole.metadata, whole.tsvector}
        filters = {name: name for name in columns if name not in taken} | filters
    whole = replace(whole, embedding=embedding, id=identity, filters=filters)
    required = {
        "id": [identity],
        "content": [whole.content],
        "embedding": [embedding],
        "tenant_column": [whole.tenant_column] if whole.tenant_column else [],
        "filters": list(given.filters.values()),
        "only": list(whole.only),
        "groups": [each.column for each in whole.groups],
        "metadata": [given.metadata] if given.metadata else [],
        "tsvector": [given.tsvector] if given.tsvector else [],
    } | {key: [each.column for each in getattr(given, key)] for key in ("document_id", "title", "uri", "position")}
    for key, names in required.items():
        for name in names:
            if name not in columns:
                raise _refusal(
                    whole, f"{key}: {table.full_name} has no readable column {name!r}; it has {', '.join(columns)}"
                )
    if columns[embedding].type not in VECTOR_TYPES:
        raise _refusal(whole, f"embedding: {embedding!r} is of type {columns[embedding].type}, not vector or halfvec")
    metadata = whole.metadata if whole.metadata in columns else ""
    if metadata and columns[metadata].type not in {"json", "jsonb"}:
        raise _refusal(whole, f"metadata: {metadata!r} is of type {columns[metadata].type}, not json or jsonb")
    return replace(
        whole,
        metadata=metadata,
        tsvector=whole.tsvector if whole.tsvector in columns else "",
        document_id=_present(whole, "document_id", table),
        title=_present(whole, "title", table),
        uri=_present(whole, "uri", table),
        position=_present(whole, "position", table),
        groups=_present(whole, "groups", table),
    )


def _present(whole: TableMapping, key: str, table: Table) -> tuple[Field, ...]:
    fields: tuple[Field, ...] = getattr(whole, key)
    for each in fields:
        if each.path and each.column in table.columns and table.columns[each.column].type not in {"json", "jsonb"}:
            kind = table.columns[each.column].type
            raise _refusal(whole, f"{key}: {each} looks into {each.column!r}, which is of type {kind}, not json")
    return tuple(each for each in fields if each.column in table.columns)


def _only_vector_column(mapping: TableMapping, table: Table) -> str:
    names = table.vector_columns
    if len(names) == 1:
        return names[0]
    found = f"it has {', '.join(names)}; name one" if names else "it has none"
    raise _refusal(mapping, f"embedding is empty, and {table.full_name} has not one column of vectors: {found}")


async def collection_id_of(conn: Connection, mapping: TableMapping, table: Table) -> str:
    """The id of a LangChain collection; "" for other layouts."""
    if mapping.layout != "langchain":
        return ""
    statement = sql.SQL("select uuid::text from {} where name = {} order by uuid limit 2").format(
        Name(table.schema, "langchain_pg_collection"), sql.Placeholder("name")
    )
    rows = await (await conn.execute(statement, {"name": mapping.collection}, prepare=False)).fetchall()
    if not rows:
        raise _refusal(mapping, f"collection: langchain_pg_collection has none of the name {mapping.collection!r}")
    return str(rows[0][0])


async def vector_lengths(conn: Connection, mapping: TableMapping, table: Table, fixed: Condition) -> tuple[int, ...]:
    """Lengths of the table's vectors: as its type says, else of a sample; () for an empty table."""
    declared = table.columns[mapping.embedding].dimensions
    if declared is not None:
        return (declared,)
    statement = sql.SQL(
        "select array_agg(distinct {schema}.vector_dims(e)) from"
        " (select {column} as e from {table} t where {fixed} and {column} is not null limit {rows}) s"
    ).format(
        schema=Name(table.extension_schema),
        column=column_sql(mapping.embedding),
        table=table.relation,
        fixed=fixed.clause,
        rows=Constant(DIMENSION_ROWS),
    )
    row = await the_row(await conn.execute(statement, dict(fixed.parameters), prepare=False))
    return tuple(sorted(row[0] or ()))


def check_dimensions(
    mapping: TableMapping, table: Table, found: tuple[int, ...], dimensions: int, embedder: str
) -> None:
    """Raise FailedPrecondition where the table's vectors are not as long as the embedder's."""
    if not found or found == (dimensions,):
        return
    lengths = " and ".join(str(each) for each in found)
    raise _refusal(
        mapping,
        f"the vectors of {table.full_name} have {lengths} dimensions, those of the embedder {embedder!r} {dimensions}; "
        f"name the model that the table was filled with in [tables.{mapping.name}.embedder]",
    )


async def _has_nulls(conn: Connection, mapping: TableMapping, table: Table, fixed: Condition) -> bool:
    column = table.columns[mapping.embedding]
    if column.not_null:
        return False
    if table.rows > CHECKED_ROWS:
        return bool(column.null_share)
    statement = sql.SQL("select exists (select from {} t where {} and {} is null)").format(
        table.relation, fixed.clause, column_sql(mapping.embedding)
    )
    try:
        async with conn.transaction():
            row = await the_row(await conn.execute(statement, dict(fixed.parameters), prepare=False))
    except psycopg.errors.QueryCanceled:  # never analysed and larger than it looks
        return bool(column.null_share)
    return bool(row[0])


async def _size(conn: Connection, table: Table, fixed: Condition) -> int:
    parameters = dict(fixed.parameters)
    plain = sql.SQL("from {} t where {}").format(table.relation, fixed.clause)
    explain = sql.SQL("explain (format json) select 1 {}").format(plain)
    plan: Any = (await the_row(await conn.execute(explain, parameters, prepare=False)))[0]
    estimate = int(plan[0]["Plan"]["Plan Rows"])
    if estimate > COUNTED_ROWS:
        return estimate
    counting = sql.SQL("select count(*) from (select {} limit {}) s").format(plain, Constant(10 * COUNTED_ROWS))
    try:
        async with conn.transaction():
            row = await the_row(await conn.execute(counting, parameters, prepare=False))
    except psycopg.errors.QueryCanceled:
        return estimate
    return int(row[0])


def _guard(
    mapping: TableMapping, table: Table, index: VectorIndex | None, dimensions: int, *, nulls: bool
) -> sql.Composable:
    column = column_sql(mapping.embedding)
    unsure = table.columns[mapping.embedding].dimensions is None and (index is None or index.cast is None)
    if unsure:  # before the first distance is taken: one vector of another length would fail the whole search
        return sql.SQL("{}.vector_dims({}) = {}").format(
            Name(table.extension_schema), column, Constant(int(dimensions))
        )
    return sql.SQL("{} is not null").format(column) if nulls or index is None else sql.SQL("true")
