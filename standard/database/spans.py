"""Statements as spans, by the conventions for databases (standard.semconv).

A span tells which statement it was by its summary, verb and table; the text of statements is long and the same every
time, and parameters are never told.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

import psycopg
from psycopg import AsyncCursor
from psycopg.pq import PipelineStatus
from psycopg.rows import TupleRow
from psycopg.sql import Composable

from standard import semconv, spans

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from standard.spans import Span

WAIT: Final = "wait for a connection"
_HEAD: Final = 4000
_VERBS: Final = "insert|update|delete|select|merge|truncate|set|create|alter|drop|analyze|vacuum"
_VERB: Final = re.compile(rf"(?<!\bfor )(?<!\bdo )\b({_VERBS})\b", re.IGNORECASE)
_TABLE: Final = re.compile(
    # A name before a bracket is a function's, but after INTO.
    r"\binto\s+\"?([a-z_][\w.]*)"
    r"|(?<!\bfor )(?<!\bdo )\b(?:from|update|join|table)\s+(?:only\s+)?\"?(?!lateral\b)([a-z_][\w.]*+)\"?(?!\s*\()",
    re.IGNORECASE,
)
_NAMED: Final = re.compile(
    r"(?:\bwith|,)\s+(?:recursive\s+)?([a-z_]\w*)\s*(?:\([^()]*\)\s*)?as\s+(?:not\s+)?(?:materialized\s+)?\(",
    re.IGNORECASE,
)
_CHANGES: Final = frozenset({"INSERT", "UPDATE", "DELETE"})


@lru_cache(maxsize=512)
def summary(text: str) -> str:
    """Verb and first table of a statement, such as `SELECT chunk`; names of its own WITH are no tables."""
    head = text[:_HEAD]
    verbs = [found.upper() for found in _VERB.findall(head)]
    verb = next((each for each in verbs if each in _CHANGES), verbs[0] if verbs else "")
    own = {name.lower() for name in _NAMED.findall(head)}
    names = [into or other for into, other in _TABLE.findall(head)]
    table = next((name for name in names if name.lower() not in own), "")
    return f"{verb} {table}".strip() or "statement"


class statement_span:  # noqa: N801 - it reads as what it opens
    """A span around a statement; what it raises is told by its SQLSTATE."""

    __slots__ = ("_opened",)

    def __init__(self, above: Span, query: object, namespace: str) -> None:
        named = summary(_text(query))
        attributes = {
            semconv.DB_SYSTEM: semconv.POSTGRESQL,
            semconv.DB_NAMESPACE: namespace,
            semconv.DB_SUMMARY: named,
        }
        self._opened = above.child(named, attributes, client=True, began_ns=None)

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            state = error.sqlstate if isinstance(error, psycopg.Error) else None
            if state:
                self._opened.set(semconv.DB_STATUS, state)
            self._opened.fail(state or spans.failure(error))
        self._opened.end()


def _text(query: object) -> str:
    if isinstance(query, bytes):
        return query[:_HEAD].decode("utf-8", "replace")
    return query.as_string(None) if isinstance(query, Composable) else str(query)


class SpanCursor(AsyncCursor[TupleRow]):
    """A cursor whose statements are spans where the call is recorded.

    Within a pipeline a statement is only sent here; whoever fetches its rows waits for it, and tells.
    """

    def execute(
        self,
        query: Any,  # noqa: ANN401 - psycopg's own has an overload a kind of query
        params: Any = None,  # noqa: ANN401
        *,
        prepare: bool | None = None,
        binary: bool | None = None,
    ) -> Coroutine[Any, Any, Self]:
        """Execute a statement; see AsyncCursor."""
        running = super().execute(query, params, prepare=prepare, binary=binary)
        above = spans.recording()
        if above is None or self.connection.pgconn.pipeline_status != PipelineStatus.OFF:
            return running
        return _told(running, statement_span(above, query, self.connection.info.dbname))


async def _told(running: Coroutine[Any, Any, Any], opened: statement_span) -> Any:  # noqa: ANN401
    with opened:
        return await running
