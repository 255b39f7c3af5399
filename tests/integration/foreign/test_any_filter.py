"""Whatever filter a caller sends, PostgreSQL takes the statement, or the filter is refused before it gets there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from standard.domain.errors import InvalidInput
from standard.domain.filter import And, Eq, Filter, In, Range
from standard.domain.passage import Scope
from standard.foreign.conditions import scope_condition
from tests.integration.foreign.conftest import MAPPINGS, open_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from standard.foreign.view import TableView

keys = st.one_of(
    st.sampled_from(["year", "published", "added", "document_id", "title"]), st.text(min_size=1, max_size=9)
)
dates = st.datetimes().map(lambda moment: moment.isoformat())
texts = st.one_of(st.text(max_size=20), st.sampled_from(["true", "2021", "{", "\\", "%s", "'", "2020-W01-1"]), dates)
numbers = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.one_of(texts, numbers, st.booleans())
conditions: st.SearchStrategy[Filter] = st.one_of(
    st.builds(Eq, keys, scalars),
    st.builds(In, keys, st.lists(scalars, min_size=1, max_size=4).map(tuple)),
    st.builds(Range, keys, st.none() | texts, texts),
    st.builds(Range, keys, numbers, st.none() | numbers),
)
filters: st.SearchStrategy[Filter] = st.one_of(
    conditions, st.lists(conditions, min_size=1, max_size=3).map(lambda parts: And(tuple(parts)))
)


@pytest.fixture(scope="module", params=["django", "haystack", "langchain-community", "langchain-pgvectorstore"])
def opened(request: pytest.FixtureRequest, layouts_url: str) -> Iterator[tuple[TableView, psycopg.Connection]]:
    async def view() -> TableView:
        async with open_table(layouts_url, MAPPINGS[request.param]) as retriever:
            return await retriever.view()

    with psycopg.connect(layouts_url, autocommit=True) as conn:
        yield asyncio.run(view()), conn


@given(condition=filters)
@example(condition=Range("added", at_least="0001-01-01T00:00:00+23:59:59.999999"))
@example(condition=In("added", ("9999-12-31T23:59:59-23:59", "2020-W01-1", "20200101")))
@example(condition=Eq("year", 1e308))
@example(condition=Eq("year", -float(2**63)))
@example(condition=Range("year", at_least=-1e308, at_most=5e-324))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_filter_is_a_statement_or_is_refused(
    opened: tuple[TableView, psycopg.Connection], condition: Filter
) -> None:
    view, conn = opened
    try:
        made = scope_condition(view.mapping, view.table.columns, view.fixed, Scope(collection="t", filter=condition))
    except InvalidInput:
        return
    statement = sql.SQL("select count(*) from {} t where {}").format(view.table.relation, made.clause)
    row = conn.execute(statement, dict(made.parameters)).fetchone()
    assert row is not None
    assert 0 <= row[0] <= 300
