"""Filters: what is refused, and that nothing of the caller becomes SQL."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from standard.domain.errors import InvalidInput
from standard.domain.filter import And, Eq, Filter, In, Range
from standard.retrieval.filters import MAX_CONDITIONS, check_filter, filter_sql

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy

anything = st.text(max_size=30) | st.floats() | st.booleans()
bound = st.none() | st.text(max_size=10) | st.floats()
leaves: st.SearchStrategy[Filter] = (
    st.builds(Eq, st.text(max_size=20), anything)
    | st.builds(In, st.text(max_size=20), st.lists(anything, max_size=5).map(tuple))
    | st.builds(Range, st.text(max_size=20), bound, bound)
)
filters: st.SearchStrategy[Filter] = st.recursive(
    leaves, lambda inner: st.builds(And, st.lists(inner, max_size=4).map(tuple)), max_leaves=12
)

CLAUSE = re.compile(
    r"""(?: d\.metadata | jsonb_typeof | any | and | jsonb | text | collate | "C" | 'number' | 'string'
    | %\(filter_\d+\)s | @> | ->> | -> | >= | <= | = | :: | \[\] | [()\s] )*""",
    re.VERBOSE,
)


@patient
@given(filters)
def test_a_filter_is_refused_by_name_or_becomes_constants_and_placeholders(condition: Filter) -> None:
    try:
        sql = filter_sql(condition)
    except InvalidInput as refused:
        named = refused.field.startswith("filter")
    else:
        named = set(re.findall(r"%\((\w+)\)s", sql.clause)) == set(sql.parameters)
        assert CLAUSE.fullmatch(sql.clause), sql.clause
    assert named


@patient
@given(st.text(max_size=20), st.text(max_size=20))
def test_two_filters_of_one_shape_share_a_clause(one: str, other: str) -> None:
    try:
        clauses = {filter_sql(Eq("key", value)).clause for value in (one, other)}
    except InvalidInput:
        return
    assert len(clauses) == 1


def deep(levels: int) -> Filter:
    condition: Filter = Eq("k", "v")
    for _ in range(levels):
        condition = And((condition,))
    return condition


@pytest.mark.parametrize(
    ("condition", "field", "problem"),
    [
        (Eq("", "v"), "filter.eq.key", "0 characters"),
        (Eq("k" * 129, "v"), "filter.eq.key", "129 characters"),
        (Eq("k", "v\x00"), "filter.eq.value", "NUL"),
        (Eq("k\ud800", "v"), "filter.eq.key", "surrogate"),
        (Eq("k", float("nan")), "filter.eq.value", "finite"),
        (Eq("k", "v" * 1025), "filter.eq.value", "1025 characters"),
        (In("k", ()), "filter.in.values", "0 values"),
        (In("k", ("v",) * 101), "filter.in.values", "101 values"),
        (In("k", ("v", float("inf"))), "filter.in.values[1]", "finite"),
        (Range("k"), "filter.range", "neither"),
        (Range("k", 1.0, "z"), "filter.range", "one type"),
        (Range("k", True), "filter.range.at_least", "truth value"),
        (And(()), "filter.and", "empty"),
        (And((Eq("k", "v"), Eq("", "v"))), "filter.and[1].eq.key", "0 characters"),
        (And(tuple(Eq(f"k{n}", "v") for n in range(1000))), "filter.and", "1000 parts"),
        (And((And((Eq("k", "v"),) * 30), And((Eq("k", "v"),) * 30))), "filter", "60 conditions"),
        (deep(1000), "filter", "nested deeper"),
    ],
)
def test_what_is_refused_is_named(condition: Filter, field: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        filter_sql(condition)
    assert refused.value.field.startswith(field)


def test_the_most_that_is_allowed_is_allowed() -> None:
    check_filter(And(tuple(In(f"k{n}", ("v",) * 100) for n in range(MAX_CONDITIONS))))
    check_filter(deep(8))
