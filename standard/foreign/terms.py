"""The terms of a question and how many rows hold each: what the lexical leg is steered and weighted by.

Prevents the question of nothing but frequent words that ranks half the table: terms are taken rarest first, and only
as many as fit into a budget of rows. Counts stop at a bound; they are remembered, and what ANALYZE found common is not
counted at all.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from standard.foreign.quoting import Constant
from standard.foreign.statements import matches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from standard.database.pool import Connection
    from standard.foreign.choice import Lexical
    from standard.foreign.view import TableView

MAX_TERMS = 32
"""Distinct terms of a question that are looked up."""
COUNTED_ROWS = 5_000
"""A term's rows are counted up to here."""
RANKED_ROWS: Mapping[str, int] = {"tsvector": 5_000, "expression": 2_000, "trigram": 2_000}
"""Rows that are ranked for a question, by Lexical.kind; where the tsvector is no column each row's text is analysed."""
MOST_REMEMBERED = 20_000
"""Frequencies that are remembered of one table."""
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


class Frequencies:
    """How many rows of a table hold a term, remembered as long as a view of it."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._known: OrderedDict[str, float] = OrderedDict()
        self._view: TableView | None = None

    async def terms(self, conn: Connection, view: TableView, lexical: Lexical, text: str) -> list[Term]:
        """Return a question's terms, in its order; counts those whose frequency is not known yet."""
        if self._view is not view:
            self._view = view
            self._known.clear()
        asked = {"text": text, "words": trigram_words(text)}
        found = await (await conn.execute(terms_sql(lexical), asked, prepare=False)).fetchall()
        common = view.table.columns[lexical.column].common
        known = {
            name: max(common[name] * view.corpus_size, 1.0) if name in common else self._known.get(name)
            for name, _, _ in found
        }
        unknown = [(name, query) for name, query, _ in found if known[name] is None]
        if unknown:
            parameters = {
                **view.fixed.parameters,
                "terms": [name for name, _ in unknown],
                "queries": [query for _, query in unknown],
            }
            counts = await (await conn.execute(counts_sql(view, lexical), parameters, prepare=False)).fetchall()
            for name, count in counts:
                known[name] = self._known[name] = float(count)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return [Term(name, query, weight, known[name] or 0.0) for name, query, weight in found]

    def __len__(self) -> int:
        return len(self._known)


def terms_sql(lexical: Lexical) -> sql.Composed:
    """Return a question's terms: (text, query, weight). Parameters: text, or for trigrams words (text[])."""
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
    return sql.SQL("select term, query, weight from ({}) each order by place, term limit {}").format(
        terms, Constant(MAX_TERMS)
    )


def counts_sql(view: TableView, lexical: Lexical) -> sql.Composed:
    """Return (term, rows that hold it, up to one more than COUNTED_ROWS).

    Parameters: terms and queries (parallel arrays) and those of the table's fixed condition.
    """
    return sql.SQL(
        "select term, (select count(*) from (select from {table} t where {fixed} and {matches} limit {counted}) held)"
        " from unnest({terms}::text[], {queries}::text[]) asked(term, query)"
    ).format(
        table=view.table.relation,
        fixed=view.fixed.clause,
        matches=matches(lexical, sql.SQL("asked.query")),
        counted=Constant(COUNTED_ROWS + 1),
        terms=sql.Placeholder("terms"),
        queries=sql.Placeholder("queries"),
    )


def trigram_words(text: str) -> list[str]:
    """Words of a question that trigrams can find, each once."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))[: 2 * MAX_TERMS]


def leading(terms: Sequence[Term], budget: int) -> list[Term]:
    """Return the terms whose rows are ranked: the rarest first, as long as all their rows are at most `budget`."""
    chosen: list[Term] = []
    read = 0.0
    for term in sorted(terms, key=lambda term: (term.frequency, term.text)):
        read += term.frequency
        if read > budget:
            break
        if term.frequency > 0:
            chosen.append(term)
    return chosen
