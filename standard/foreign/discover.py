"""Find the tables of a database that hold embeddings, guess what their columns mean, and look at how they are kept.

Reads the catalogue and samples, never a whole table: a role that may select is enough, and no statement takes longer
than CHECK_SECONDS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
from psycopg import sql

from standard.database.pool import the_row, transaction
from standard.foreign.catalogue import VECTOR_TYPES, read_table
from standard.foreign.conditions import column_sql
from standard.foreign.mapping import Field, TableMapping, recognise
from standard.foreign.quoting import Constant, Name
from standard.foreign.rows import decode
from standard.foreign.statements import nearest_sql
from standard.foreign.view import CHECK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from standard.database.pool import Connection, Pool
    from standard.foreign.catalogue import Table
    from standard.foreign.view import TableView

MOST_TABLES = 50
"""Tables that are looked at, the largest ones."""
MOST_COLLECTIONS = 20
"""Collections of one LangChain table that are looked at, the largest ones."""
SAMPLE = 8
"""Rows whose text is embedded again to see whether a model is the one that the table was filled with."""
_WALKED_ROWS = 10_000
"""Up to so many rows a sample is taken from the front of the table, beyond it from pages all over."""

_TABLES = """
select c.oid::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'm', 'v', 'f') and not c.relispartition
    and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
    and exists (
        select from pg_attribute a join pg_type t on t.oid = a.atttypid
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and t.typname = any(%(types)s::text[])
    )
    -- the gateway's own
    and not (
        c.relname in ('chunk', 'sentence')
        and exists (select from pg_class g where g.relnamespace = n.oid and g.relname = 'generation')
    )
order by c.reltuples desc, c.oid limit %(most)s
"""
_DEAD = """
select coalesce(n_dead_tup::float8 / greatest(n_live_tup + n_dead_tup, 1), 0), greatest(last_analyze, last_autoanalyze)
from pg_stat_all_tables where relid = %(oid)s
"""
_NAMES = {
    "content": ("content", "text", "body", "document", "chunk", "chunk_text", "page_content", "passage", "description"),
    "document_id": ("document_id", "doc_id", "source_id", "slug", "document", "source"),
    "title": ("title", "heading", "name", "file_name", "filename", "subject"),
    "uri": ("url", "uri", "link", "source_url", "path", "file_path"),
    "position": ("position", "chunk_index", "chunk_number", "page_number", "page", "ordinal", "sequence"),
    "metadata": ("metadata", "meta", "attributes", "extra", "properties"),
    "tenant_column": (
        "tenant",
        "tenant_id",
        "tenant_name",
        "organisation_id",
        "organization_id",
        "org_id",
        "account_id",
    ),
}


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How a table is kept: share of dead rows (0-1), and whether it was ever analysed."""

    dead_share: float = 0.0
    analysed: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """A mapping for a table that was found. `guessed` are the keys that its names suggested, not its layout."""

    mapping: TableMapping
    guessed: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()


async def find_tables(pool: Pool) -> list[Table]:
    """Return the tables and views with a column of vectors, the largest first, the gateway's own left out."""
    async with transaction(pool, statement_timeout=CHECK_SECONDS) as conn:
        wanted = {"types": sorted(VECTOR_TYPES), "most": MOST_TABLES}
        rows = await (await conn.execute(_TABLES.encode(), wanted, prepare=False)).fetchall()
        found = [await read_table(conn, row[0]) for row in rows]
    return [table for table in found if table is not None]


async def collections_of(pool: Pool, table: Table) -> list[str]:
    """Names of the collections of a LangChain table, () for a role that may not read them."""
    statement = sql.SQL("select name from {} where name is not null order by name limit {}").format(
        Name(table.schema, "langchain_pg_collection"), Constant(MOST_COLLECTIONS)
    )
    try:
        async with transaction(pool, statement_timeout=CHECK_SECONDS) as conn:
            try:
                rows = await (await conn.execute(statement, {}, prepare=False)).fetchall()
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable):
                rows = []
                raise _Unreadable from None
    except _Unreadable:
        return []
    return [row[0] for row in rows]


class _Unreadable(Exception):
    """Ends a transaction whose statement was refused."""


def propose(table: Table, *, collection: str = "") -> list[Proposal]:
    """Return a mapping for each column of vectors, to be looked over by whoever knows the table."""
    layout = recognise(frozenset(table.columns))
    where = table.name if table.schema == "public" else f"{table.schema}.{table.name}"
    if layout is not None:
        name = collection or table.name.removeprefix("data_")
        shown = "" if where == layout.table else where
        mapping = TableMapping(section_name(name), layout=layout.name, table=shown, collection=collection)
        return [Proposal(mapping)]
    return [_own(table, where, embedding) for embedding in table.vector_columns]


def _own(table: Table, where: str, embedding: str) -> Proposal:
    texts = [each.name for each in table.columns.values() if each.category == "S"]
    jsons = [each.name for each in table.columns.values() if each.type in {"json", "jsonb"}]
    guessed: dict[str, str] = {}
    for key, names in _NAMES.items():
        pool = jsons if key == "metadata" else list(table.columns) if key != "content" else texts
        taken = {embedding, table.primary_key, *guessed.values()}
        found = next((name for name in names if name in pool and name not in taken), "")
        if found:
            guessed[key] = found
    if "content" not in guessed:
        left = [name for name in texts if name not in {table.primary_key, *guessed.values()}] or texts
        guessed["content"] = left[-1] if left else ""
    several = len(table.vector_columns) > 1
    mapping = TableMapping(
        section_name(f"{table.name}-{embedding}" if several else table.name),
        table=where,
        content=guessed["content"],
        embedding=embedding if several else "",
        metadata=guessed.get("metadata", ""),
        document_id=_guess(guessed, "document_id"),
        title=_guess(guessed, "title"),
        uri=_guess(guessed, "uri"),
        position=_guess(guessed, "position"),
        tenant_column=guessed.get("tenant_column", ""),
    )
    used = {embedding, table.primary_key, *guessed.values()}
    filters = [each.name for each in table.columns.values() if each.category in "NBDS" and each.name not in used]
    return Proposal(mapping, tuple(sorted(guessed)), tuple(filters[:20]))


def _guess(guessed: Mapping[str, str], key: str) -> tuple[Field, ...]:
    return (Field(guessed[key]),) if key in guessed else ()


def section_name(text: str) -> str:
    """Return a name for a collection made of a table's."""
    kept = "".join(
        character if character.isascii() and (character.isalnum() or character in "_.-") else "-" for character in text
    )
    return (kept.strip("-_.") or "table")[:128]


async def upkeep(pool: Pool, table: Table) -> Upkeep:
    """Look at the statistics that PostgreSQL keeps of a table."""
    async with transaction(pool, statement_timeout=CHECK_SECONDS) as conn:
        row = await (await conn.execute(_DEAD.encode(), {"oid": table.oid}, prepare=False)).fetchone()
    return Upkeep() if row is None else Upkeep(float(row[0]), row[1] is not None)


async def index_is_used(pool: Pool, view: TableView) -> bool:
    """Whether the planner takes the index for a search as it is made."""
    if view.index is None:
        return False
    first = "[1" + ",0" * (view.dimensions - 1) + "]"
    parameters = {**view.fixed.parameters, "vector": first, "depth": 100}
    statement = sql.SQL("explain (format json) {}").format(nearest_sql(view, view.fixed, 160, 20_000))
    async with transaction(pool, statement_timeout=CHECK_SECONDS) as conn:
        plan: Any = (await the_row(await conn.execute(statement, parameters, prepare=False)))[0]
    names = _ordered_by(plan)
    # a partition's index has a name of its own
    return bool(names) if view.table.kind == "p" else view.index.name in names


def _ordered_by(plan: Any) -> set[str]:  # noqa: ANN401 - a plan as EXPLAIN gives it
    """Names of the indexes that a plan takes its order from."""
    if isinstance(plan, list):
        return set().union(*(_ordered_by(each) for each in plan))
    if isinstance(plan, dict):
        named = {plan["Index Name"]} if "Index Name" in plan and "Order By" in plan else set()
        return named.union(*(_ordered_by(each) for each in plan.values() if isinstance(each, list | dict)))
    return set()


async def sample(pool: Pool, view: TableView) -> tuple[list[str], NDArray[np.float32]]:
    """Return the texts of some rows and their vectors, unit rows (n, d); n may be 0."""
    async with transaction(pool, statement_timeout=CHECK_SECONDS) as conn:
        try:
            rows = await _sampled(conn, view)
        except psycopg.errors.QueryCanceled:
            rows = []
            raise _Unreadable from None
    kind = view.table.columns[view.mapping.embedding].type
    rows = [row for row in rows if row[0] and row[0].strip()]
    return [row[0] for row in rows], decode([bytes(row[1]) for row in rows], kind, view.dimensions)


async def _sampled(conn: Connection, view: TableView) -> Sequence[tuple[Any, ...]]:
    table, mapping = view.table, view.mapping
    paged = table.rows > _WALKED_ROWS and table.kind in {"r", "p", "m"}
    share = min(100.0, max(1e-4, 100.0 * 40 * SAMPLE / max(table.rows, 1)))
    sampled = sql.SQL(" tablesample system ({})").format(Constant(share)) if paged else sql.SQL("")
    send = f"{table.columns[mapping.embedding].type}_send"
    statement = sql.SQL(
        "select left({content}::text, 2000), {send}({embedding}) from {table} t{sampled}"
        " where {fixed} and {guard} and {embedding} is not null limit {most}"
    ).format(
        content=column_sql(mapping.content),
        send=Name(table.extension_schema, send),
        embedding=column_sql(mapping.embedding),
        table=table.relation,
        sampled=sampled,
        fixed=view.fixed.clause,
        guard=view.guard,
        most=Constant(SAMPLE),
    )
    return await (await conn.execute(statement, dict(view.fixed.parameters), prepare=False)).fetchall()


def agreement(stored: NDArray[np.float32], embedded: NDArray[np.float32]) -> float | None:
    """How near texts are to their own stored vectors, -1..1: the median cosine; None for less than three texts."""
    if len(stored) < 3 or stored.shape != embedded.shape:
        return None
    own = np.einsum("ij,ij->i", stored, embedded)
    median = float(np.median(own))
    return None if math.isnan(median) else median
