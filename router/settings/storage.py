"""[database] [tables] [journal]: what is kept, and where."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from router.settings.models import EmbeddingSettings
from router.settings.sections import Seconds, Section


class DatabaseSettings(Section):
    """[database] PostgreSQL with pgvector."""

    url: SecretStr | None = Field(
        None, description="postgresql://… of your server; empty = an embedded PostgreSQL in the data directory."
    )
    pool_min: int = Field(1, ge=0, le=1000, description="Connections kept open.")
    pool_max: int = Field(8, ge=1, le=1000, description="Most connections of one process.")
    max_waiting: int = Field(256, ge=1, le=100_000, description="Callers that may wait for a connection.")
    acquire_timeout_seconds: Seconds = Field(5.0, description="Longest wait for a connection.")
    connect_timeout_seconds: Seconds = Field(5.0, description="Longest time to connect.")
    statement_timeout_seconds: Seconds = Field(15.0, description="Longest time of one statement of a question.")
    transaction_pooling: bool = Field(
        False, description="Set behind PgBouncer in transaction mode: no prepared statements."
    )
    accept_old_pgvector: bool = Field(False, description="Run on pgvector below 0.8.4, with a warning.")


class TableSettings(Section):
    """[tables.NAME] a table that somebody else fills, searched as the collection NAME (docs/tables.md)."""

    url: SecretStr | None = Field(None, description="Its database, a read-only role is enough; empty = the gateway's.")
    layout: Literal["table", "langchain", "langchain-pgvectorstore", "llamaindex", "haystack"] = Field(
        "table", description="The library that made it; table = your own columns, named below."
    )
    table: str = Field("", description="Its name, or schema.name; empty = as the layout has it.")
    collection: str = Field("", description="The collection in langchain_pg_collection.")
    id: str = Field("", description="A unique column; empty = the primary key.")
    content: str = Field("", description="The column with the text of a passage.")
    embedding: str = Field("", description="The vector or halfvec column; empty = the only one.")
    document_id: str | tuple[str, ...] = Field(
        (), description='Column or column->key, or several that are tried in order: ["meta->source", "id"].'
    )
    title: str | tuple[str, ...] = Field((), description="As document_id.")
    uri: str | tuple[str, ...] = Field((), description="As document_id.")
    position: str | tuple[str, ...] = Field((), description="Number of a passage in its document; as document_id.")
    metadata: str = Field("", description="A json or jsonb column, shown with a passage and filtered by.")
    filters: dict[str, str] = Field(default_factory=dict, description="Columns to filter by: key = column.")
    only: dict[str, str | float | bool] = Field(
        default_factory=dict, description="Values that rows must have: column = value."
    )
    tenant: str = Field("default", min_length=1, description="The tenant whose table it is.")
    tenant_column: str = Field("", description="The column that names each row's tenant, instead.")
    groups: str | tuple[str, ...] = Field((), description="A row's access groups: a text[] column or a json array.")
    tsvector: str = Field("", description="A tsvector column; empty = the layout's, or whichever has an index.")
    text_config: str = Field("", description="Its text search configuration; empty = as the column was made.")
    lexical: bool = Field(True, description="Look words up where there is a text index.")
    distance: Literal["", "cosine", "inner_product", "l2"] = Field("", description="Empty = that of the index.")
    nulls: Literal["refuse", "skip"] = Field("refuse", description="What is done about rows without an embedding.")
    embedder: EmbeddingSettings | None = Field(
        None, description="The model it was filled with, keys as in [embedding]; empty = the gateway's."
    )
    answer_instructions: str = Field(
        "", max_length=2000, description="Added to the model's instructions for answers from it (docs/corpus.md)."
    )
    answer_language: str = Field(
        "", description="BCP 47 tag of the language of answers from it; empty = that of the question."
    )
    evidence: bool = Field(
        False,
        description="With another model: embed what is found with the gateway's own as well, so that it counts for the "
        "route; takes time where a passage is new.",
    )


class JournalSettings(Section):
    """[journal] what is kept of runs."""

    questions: Literal["text", "hash", "nothing"] = Field(
        "text", description="What is kept of questions, queries and answers; hash and nothing make a run unreplayable."
    )
    retention_days: float = Field(30.0, gt=0.0, le=3650.0, description="Runs older than this are deleted.")
    lease_seconds: float = Field(
        30.0, ge=1.0, le=3600.0, description="A run whose process died can be taken over by another after this long."
    )
    detach: bool = Field(False, description="Let a run finish when its last reader has gone.")
