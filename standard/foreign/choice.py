"""Which index a search of a foreign table goes by, for meaning and for words, and what there is to say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from standard.foreign.catalogue import config_of

if TYPE_CHECKING:
    from standard.foreign.catalogue import Table, VectorIndex
    from standard.foreign.mapping import TableMapping

UNINDEXED_ROWS = 20_000
"""Up to so many rows (by the planner's estimate) a tsvector column is searched without an index."""


@dataclass(frozen=True, slots=True)
class Lexical:
    """Where words are looked up: `kind` tsvector (a column), expression (of the content) or trigram.

    `index` is the index that serves it, "" for none.
    """

    kind: str
    column: str
    config: str
    index: str = ""
    coalesced: bool = False


def choose_index(
    mapping: TableMapping, table: Table, dimensions: int, collection_id: str = ""
) -> tuple[VectorIndex | None, str, list[str]]:
    """The index to search by, the distance, and what there is to say of the choice."""
    usable = [
        index
        for index in table.vector_indexes
        if index.column == mapping.embedding
        and index.distance is not None
        and (index.cast is None or index.cast[1] == dimensions)
        and (not index.predicate or (collection_id and collection_id in index.predicate) or mapping.only)
    ]
    if mapping.distance:
        fitting = [index for index in usable if index.distance and index.distance[0] == mapping.distance]
        if usable and not fitting:
            others = ", ".join(f"{index.name} ({index.operator_class})" for index in usable)
            return (
                None,
                mapping.distance,
                [f"no index serves the distance {mapping.distance!r}, so search is exact; there is {others}"],
            )
        usable = fitting
    if not usable:
        unfit = [f"{each.name} ({each.operator_class})" for each in table.vector_indexes]
        there = f"; not usable: {', '.join(unfit)}" if unfit else ""
        return None, mapping.distance or "cosine", [f"no index on {mapping.embedding}: search is exact{there}"]
    best = min(usable, key=lambda index: (not index.predicate, index.method != "hnsw", index.name))
    assert best.distance is not None  # noqa: S101 - of those above
    return best, best.distance[0], []


def choose_lexical(mapping: TableMapping, table: Table) -> tuple[Lexical | None, list[str]]:
    """Where words are looked up, and what there is to say where nowhere."""
    if not mapping.lexical:
        return None, []
    indexes = table.text_indexes
    served = {index.column: index.name for index in indexes if index.kind == "tsvector"}
    column = mapping.tsvector or next(iter(served), "")
    on_content = next((each for each in indexes if each.kind == "expression" and each.column == mapping.content), None)
    if column and (mapping.tsvector or on_content is None) and table.columns[column].type == "tsvector":
        if column not in served and table.rows > UNINDEXED_ROWS:
            return None, [f"{column} has no index, and the table is too large to go without: words are not looked up"]
        config = mapping.text_config or config_of(table.columns[column].generated) or table.text_config
        return Lexical("tsvector", column, config, served.get(column, "")), []
    if on_content is not None:
        return Lexical("expression", mapping.content, on_content.config, on_content.name, on_content.coalesced), []
    trigram = next((each for each in indexes if each.kind == "trigram" and each.column == mapping.content), None)
    if trigram is not None:
        config = mapping.text_config or table.text_config
        return Lexical("trigram", mapping.content, config, trigram.name), []
    advice = f"create index concurrently on {table.full_name} using gin (to_tsvector('english', {mapping.content}))"
    return None, [f"no text index on {mapping.content}: words are not looked up, meaning alone is; {advice}"]
