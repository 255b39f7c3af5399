"""Filters mean in PostgreSQL what they say in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection
from psycopg.rows import TupleRow

from standard.domain.filter import And, Eq, Filter, In, Range, Scalar
from standard.retrieval.filters import filter_sql

letters = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
texts = st.sampled_from(
    ["", "a", "B", "ä", "z", "10", "9", "true", "ß", "𝔸", "\ue000", "%s", "'", "\\u0000"]
) | st.text(letters, max_size=4)
numbers = st.sampled_from([0.0, 1.0, -1.0, 9.0, 10.0, 0.1, 1e300, -1e-300]) | st.floats(-100, 100)
scalars: st.SearchStrategy[Scalar] = texts | numbers | st.booleans()
names = st.sampled_from(["k", "K", "k.v", "", "ключ", "'; --", "%(x)s"])
keys = names.filter(bool)
stored = st.dictionaries(
    names,
    scalars
    | st.integers(-5, 5)
    | st.none()
    | st.lists(scalars, max_size=2)
    | st.dictionaries(keys, scalars, max_size=1),
    max_size=4,
)
ranges = st.one_of(
    st.builds(Range, keys, numbers, st.none() | numbers),
    st.builds(Range, keys, st.none(), numbers),
    st.builds(Range, keys, texts, st.none() | texts),
    st.builds(Range, keys, st.none(), texts),
)
leaves: st.SearchStrategy[Filter] = (
    st.builds(Eq, keys, scalars) | st.builds(In, keys, st.lists(scalars, min_size=1, max_size=4).map(tuple)) | ranges
)
filters: st.SearchStrategy[Filter] = st.recursive(
    leaves, lambda inner: st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple)), max_leaves=4
)


def same(one: object, other: object) -> bool:
    """JSON's equality of scalars: true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other and not isinstance(one, (list, dict))


def between(value: object, low: str | float | None, high: str | float | None) -> bool:
    bounds = [bound for bound in (low, high) if bound is not None]
    if isinstance(bounds[0], str):
        return isinstance(value, str) and (low is None or value >= str(low)) and (high is None or value <= str(high))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return (low is None or value >= float(low)) and (high is None or value <= float(high))


def matches(condition: Filter, metadata: dict[str, object]) -> bool:
    match condition:
        case Eq(key, value):
            return key in metadata and same(metadata[key], value)
        case In(key, values):
            return key in metadata and any(same(metadata[key], value) for value in values)
        case Range(key, low, high):
            return key in metadata and between(metadata[key], low, high)
        case And(parts):
            return all(matches(part, metadata) for part in parts)


@pytest.fixture(scope="module")
def conn(module_database_url: str) -> Iterator[Connection[TupleRow]]:
    with psycopg.connect(module_database_url, autocommit=True) as opened:
        yield opened


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(stored, min_size=1, max_size=8), filters)
def test_sql_and_python_agree(
    conn: Connection[TupleRow], documents: list[dict[str, object]], condition: Filter
) -> None:
    sql = filter_sql(condition)
    statement = (
        "select array_agg(n order by n) from unnest(%(documents)s::jsonb[]) with ordinality d(metadata, n)"
        f" where {sql.clause}"
    )
    parameters = {**sql.parameters, "documents": [json.dumps(document) for document in documents]}
    row = conn.execute(statement.encode(), parameters).fetchone()
    assert row is not None
    expected = [n for n, document in enumerate(documents, start=1) if matches(condition, document)]
    assert (row[0] or []) == expected


def test_equality_and_membership_can_use_the_index_on_metadata(conn: Connection[TupleRow]) -> None:
    conn.execute("set enable_seqscan = off")
    for condition in (Eq("k", "v"), In("k", ("v", 1.0))):
        sql = filter_sql(condition)
        statement = f"explain select from document d where {sql.clause}".encode()
        plan = "\n".join(line for (line,) in conn.execute(statement, sql.parameters).fetchall())
        assert "document_metadata_idx" in plan
