"""The rows that a search found, as passages.

Prevents the one odd row that costs everybody's search: what a json column holds is read as text and parsed here, since
PostgreSQL refuses a whole statement for a NUL or half a surrogate pair in it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from standard.domain.passage import Passage
from standard.domain.text import UntrustedText
from standard.embedding.protocol import normalised
from standard.foreign.conditions import column_sql, json_of, text_of
from standard.foreign.mapping import Field
from standard.foreign.quoting import Constant, Name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from psycopg.rows import TupleRow

    from standard.foreign.conditions import Condition
    from standard.foreign.view import TableView

LONGEST_TEXT = 32_000
"""Code points of a passage that are read."""
LONGEST_METADATA = 65_536
"""Code points of metadata that are read; longer ones are left out."""
_HIDDEN_METADATA = ("_node_content", "_node_type")
_UNREADABLE = re.compile("[\x00\ud800-\udfff]")


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
    """Whether a field lies in a json column of metadata, whose text is read anyway."""
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


def decode(sent: Sequence[bytes], kind: str, dimensions: int) -> NDArray[np.float32]:
    """Decode what vector_send or halfvec_send gave (two int16, then floats) to (n, dimensions), rows of unit length."""
    if not sent:
        return np.zeros((0, dimensions), np.float32)
    width, dtype = (2, ">f2") if kind == "halfvec" else (4, ">f4")
    header = 4 // width
    packed = np.frombuffer(b"".join(sent), dtype).reshape(len(sent), dimensions + header)
    return normalised(packed[:, header:].astype(np.float32))


def passage_of(view: TableView, row: TupleRow) -> Passage:
    """The passage of a row of rows_sql, not scanned yet."""
    key, text, document, title, uri, position, metadata, others, _ = row
    mapping, shown = view.mapping, shown_metadata(metadata, others)
    content = UntrustedText(text or "")
    return Passage(
        passage_id=key,
        document_id=first_of(view, mapping.document_id, document, shown) or key,
        title=UntrustedText(first_of(view, mapping.title, title, shown)),
        uri=first_of(view, mapping.uri, uri, shown),
        text=content,
        position=_position(first_of(view, mapping.position, position, shown)),
        content_hash=content.content_hash(),
        metadata=shown,
    )


def _position(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
