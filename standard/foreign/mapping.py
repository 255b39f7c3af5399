"""Which table, and what of it holds what: the mapping of a table that somebody else made and fills.

Pure. What a mapping leaves empty is filled in by its layout here, and by the database's catalogue in `view`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from standard.domain.errors import InvalidInput
from standard.domain.filter import Scalar

DistanceName: TypeAlias = Literal["", "cosine", "inner_product", "l2"]
NullPolicy: TypeAlias = Literal["refuse", "skip"]

MAX_NAME_BYTES = 63
"""Bytes of an identifier of PostgreSQL; longer ones are cut by the server, so they can name nothing."""
_ARROW = re.compile(r"\s*->>?\s*")


@dataclass(frozen=True, slots=True)
class Field:
    """A value of a row: a column, or with `path` a value within a json or jsonb column."""

    column: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "->".join((self.column, *self.path))


def parse_field(text: str, key: str = "field") -> Field:
    """Read `column` or `column->key->key`. Raises InvalidInput naming `key`."""
    parts = _ARROW.split(text.strip())
    column = identifier(parts[0], key)
    if not all(parts[1:]) or "\x00" in text:
        raise InvalidInput(key, f"{text!r} is neither a column nor column->key")
    return Field(column, tuple(parts[1:]))


def identifier(text: str, key: str) -> str:
    """Return a name that can name a column, table or schema. Raises InvalidInput naming `key`."""
    if not 1 <= len(text.encode("utf-8", "replace")) <= MAX_NAME_BYTES or "\x00" in text:
        raise InvalidInput(key, f"{text!r:.80} cannot be a name in PostgreSQL: it needs 1 to {MAX_NAME_BYTES} bytes")
    return text


@dataclass(frozen=True, slots=True)
class TableMapping:
    """A table as its operator describes it; "" and () = by the layout, else by the catalogue, else not there.

    `name` is the collection under which questions reach it; `table` may be `schema.table`. `id` must be unique (the
    primary key); `content` is the text of a passage. `document_id`, `title`, `uri` and `position` are tried in order
    until one holds something. `metadata` is a json or jsonb column; `filters` maps a filter's key to a column. `only`
    are values that rows must have. `collection` names one in LangChain's langchain_pg_collection.

    Rows belong to the tenant `tenant`, or with `tenant_column` each to the tenant it names. `groups` holds a row's
    access groups (text[] or a json array). `distance` overrides the operator of the index. `nulls`: what is done about
    rows without an embedding. `lexical` switches the second leg.
    """

    name: str
    table: str = ""
    layout: str = "table"
    collection: str = ""
    id: str = ""
    content: str = ""
    embedding: str = ""
    document_id: tuple[Field, ...] = ()
    title: tuple[Field, ...] = ()
    uri: tuple[Field, ...] = ()
    position: tuple[Field, ...] = ()
    metadata: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, Scalar] = field(default_factory=dict)
    tenant: str = "default"
    tenant_column: str = ""
    groups: tuple[Field, ...] = ()
    tsvector: str = ""
    text_config: str = ""
    distance: DistanceName = ""
    nulls: NullPolicy = "refuse"
    lexical: bool = True

    @property
    def schema_and_table(self) -> tuple[str, str]:
        """The schema ("" = by the search path) and the table."""
        schema, _, table = self.table.rpartition(".")
        return schema, table

    def open_to(self, tenant: str) -> bool:
        """Whether a tenant may know of the table; with `tenant_column` all may, each of its own rows."""
        return bool(self.tenant_column) or self.tenant == tenant


@dataclass(frozen=True, slots=True)
class Layout:
    """How a library lays its tables out. `columns` are those by which a table of it is recognised."""

    name: str
    library: str
    columns: frozenset[str]
    content: str
    metadata: str
    table: str = ""
    document_id: tuple[str, ...] = ()
    title: tuple[str, ...] = ()
    uri: tuple[str, ...] = ()
    position: tuple[str, ...] = ()
    tsvector: str = ""


LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            "langchain",
            "LangChain PGVector, both generations",
            frozenset({"collection_id", "embedding", "document", "cmetadata"}),
            content="document",
            metadata="cmetadata",
            table="langchain_pg_embedding",
            document_id=("cmetadata->document_id", "cmetadata->source"),
            title=("cmetadata->title",),
            uri=("cmetadata->url", "cmetadata->source"),
            position=("cmetadata->chunk_index",),
        ),
        Layout(
            "langchain-pgvectorstore",
            "LangChain PGVectorStore",
            frozenset({"langchain_id", "content", "embedding"}),
            content="content",
            metadata="langchain_metadata",
            document_id=("langchain_metadata->document_id", "langchain_metadata->source"),
            title=("langchain_metadata->title",),
            uri=("langchain_metadata->url", "langchain_metadata->source"),
            position=("langchain_metadata->chunk_index",),
        ),
        Layout(
            "llamaindex",
            "LlamaIndex PGVectorStore",
            frozenset({"id", "text", "metadata_", "node_id", "embedding"}),
            content="text",
            metadata="metadata_",
            document_id=("metadata_->ref_doc_id", "metadata_->document_id"),
            title=("metadata_->title", "metadata_->file_name"),
            uri=("metadata_->url", "metadata_->file_path"),
            tsvector="text_search_tsv",
        ),
        Layout(
            "haystack",
            "Haystack PgvectorDocumentStore",
            frozenset({"id", "embedding", "content", "blob_data", "blob_meta", "blob_mime_type", "meta"}),
            content="content",
            metadata="meta",
            table="haystack_documents",
            document_id=("meta->source_id", "meta->file_path"),
            title=("meta->title", "meta->file_name"),
            uri=("meta->url", "meta->file_path"),
            position=("meta->split_id",),
        ),
    )
}
"""Layouts by name; `table` is the one without: everything by mapping."""


def recognise(columns: frozenset[str]) -> Layout | None:
    """Return the layout of a table with these columns; None for one of somebody's own."""
    return next((layout for layout in LAYOUTS.values() if layout.columns <= columns), None)


def with_layout(mapping: TableMapping) -> TableMapping:
    """Fill in what the mapping's layout knows. Raises InvalidInput for a layout or a table that is missing."""
    layout = LAYOUTS.get(mapping.layout)
    if layout is None and mapping.layout != "table":
        allowed = ", ".join((*LAYOUTS, "table"))
        raise InvalidInput(f"tables.{mapping.name}.layout", f"{mapping.layout!r} is none of {allowed}")
    table = mapping.table or (layout.table if layout else "")
    if not table:
        raise InvalidInput(f"tables.{mapping.name}.table", "is empty; name the table, or schema.table")
    if mapping.layout == "langchain" and not mapping.collection:
        raise InvalidInput(
            f"tables.{mapping.name}.collection", "is empty; name the collection in langchain_pg_collection"
        )
    if mapping.layout != "langchain" and mapping.collection:
        raise InvalidInput(f"tables.{mapping.name}.collection", "is for the layout langchain alone; leave it out")
    if layout is None:
        return replace(mapping, table=table)
    return replace(
        mapping,
        table=table,
        content=mapping.content or layout.content,
        metadata=mapping.metadata or layout.metadata,
        document_id=mapping.document_id or _fields(layout.document_id),
        title=mapping.title or _fields(layout.title),
        uri=mapping.uri or _fields(layout.uri),
        position=mapping.position or _fields(layout.position),
        tsvector=mapping.tsvector or layout.tsvector,
    )


def _fields(texts: tuple[str, ...]) -> tuple[Field, ...]:
    return tuple(parse_field(text) for text in texts)
