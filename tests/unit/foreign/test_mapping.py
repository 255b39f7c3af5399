"""Mappings are read strictly, layouts are recognised, and nothing of a caller becomes SQL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from standard.domain.errors import InvalidInput
from standard.domain.filter import And, Eq, Filter, In, Range
from standard.domain.passage import Scope
from standard.foreign.catalogue import Column, config_of, read_text_index, read_vector_index
from standard.foreign.conditions import Condition, fixed_condition, scope_condition
from standard.foreign.mapping import (
    LAYOUTS,
    Field,
    TableMapping,
    identifier,
    parse_field,
    recognise,
    with_layout,
)
from standard.foreign.rows import shown_metadata
from standard.foreign.terms import Term, leading

COLUMNS = {
    "id": Column("id", "int8", "N"),
    "body": Column("body", "text", "S"),
    "meta": Column("meta", "jsonb", "U"),
    "year": Column("year", "int4", "N"),
    "done": Column("done", "bool", "B"),
    "made": Column("made", "timestamptz", "D"),
    "code": Column("code", "uuid", "U"),
    "who": Column("who", "varchar", "S"),
}
MAPPING = TableMapping(
    "t",
    table="notes",
    id="id",
    content="body",
    embedding="vector",
    metadata="meta",
    filters={name: name for name in ("year", "done", "made", "code", "body")},
    tenant_column="who",
    groups=(Field("meta", ("groups",)),),
)
NOTHING = Condition(sql.SQL("true"))

keys = st.one_of(st.sampled_from(["year", "done", "made", "code", "body"]), st.text(min_size=1, max_size=20))
texts = st.text(max_size=30)
scalars = st.one_of(texts, st.floats(allow_nan=False, allow_infinity=False), st.booleans())
bounds = st.one_of(
    st.tuples(st.none() | texts, texts), st.tuples(st.floats(-1e9, 1e9), st.none() | st.floats(-1e9, 1e9))
)
simple = st.one_of(
    st.builds(Eq, keys, scalars),
    st.builds(In, keys, st.lists(scalars, min_size=1, max_size=5).map(tuple)),
    st.builds(lambda key, pair: Range(key, *pair), keys, bounds),
)
filters: st.SearchStrategy[Filter] = st.recursive(
    simple, lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: And(tuple(parts))), max_leaves=6
)


@given(condition=filters, tenant=st.text(min_size=1, max_size=20))
def test_no_value_of_a_caller_stands_in_the_statement(condition: Filter, tenant: str) -> None:
    scope = Scope(tenant=tenant, collection="t", filter=condition, groups=frozenset({"secret group"}))
    try:
        made = scope_condition(MAPPING, COLUMNS, NOTHING, scope)
    except InvalidInput:
        return
    text = made.clause.as_string(None)
    names = {f"%({name})s" for name in made.parameters}
    bare = text
    for name in names:
        assert name in text
        bare = bare.replace(name, "")
    assert "%" not in bare
    assert set(bare) <= set("\"'()[]{}<>=@?|.,:-_ *abcdefghijklmnopqrstuvwxyzC0123456789")
    assert bare.count("'") % 2 == 0
    # the statement's form follows from that of the filter, never from its values
    assert "secret group" not in text


@given(st.text(max_size=80))
def test_a_field_is_read_or_refused(text: str) -> None:
    try:
        found = parse_field(text)
    except InvalidInput:
        return
    assert found.column
    assert all(found.path)
    assert parse_field(str(found)) == found


@pytest.mark.parametrize("text", ["", "->x", "a->", "x" * 64, "a\x00b", "é" * 32])
def test_what_can_name_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_field(text, "title")


def test_names_are_measured_in_bytes_as_postgresql_does() -> None:
    assert identifier("é" * 31, "x") == "é" * 31
    with pytest.raises(InvalidInput, match="63 bytes"):
        identifier("é" * 32, "x")


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_layout_is_recognised_by_its_columns_and_fills_the_mapping_in(layout: object) -> None:
    known = LAYOUTS[getattr(layout, "name", "")]
    assert recognise(known.columns | {"anything"}) == known
    collection = "c" if known.name == "langchain" else ""
    whole = with_layout(TableMapping("t", layout=known.name, table="mine", collection=collection, content="other"))
    assert (whole.table, whole.content, whole.metadata) == ("mine", "other", known.metadata)
    assert whole.title


def test_columns_of_ones_own_are_no_layout() -> None:
    assert recognise(frozenset({"id", "body", "embedding"})) is None


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (TableMapping("t"), "tables.t.table: is empty"),
        (TableMapping("t", layout="langchain"), "tables.t.collection: is empty"),
        (TableMapping("t", layout="haystack", collection="c"), "for the layout langchain alone"),
        (TableMapping("t", layout="nonesuch", table="x"), "'nonesuch' is none of langchain"),
    ],
)
def test_a_mapping_that_contradicts_itself_is_refused(mapping: TableMapping, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        with_layout(mapping)


@pytest.mark.parametrize(
    ("definition", "column", "cast"),
    [
        ("(embedding::vector(384))", "embedding", ("vector", 384)),
        ("((embedding)::vector(384))", "embedding", ("vector", 384)),
        ('("Em bed"::public.halfvec(1536))', "Em bed", ("halfvec", 1536)),
        ('("a""b"::halfvec(3))', 'a"b', ("halfvec", 3)),
        ("binary_quantize(embedding)", None, None),
        ("evil(embedding)::vector(3)", None, None),
    ],
)
def test_an_index_on_a_cast_is_read_and_any_other_expression_left_alone(
    definition: str, column: str | None, cast: tuple[str, int] | None
) -> None:
    found = read_vector_index("i", "hnsw", "vector_cosine_ops", None, definition, "", 0)
    assert (found and found.column, found and found.cast) == (column, cast)


@pytest.mark.parametrize(
    ("definition", "column", "config", "coalesced"),
    [
        ("to_tsvector('english'::regconfig, content)", "content", "english", False),
        ("to_tsvector('german'::regconfig, (body)::text)", "body", "german", False),
        ("to_tsvector('pg_catalog.simple'::regconfig, body::text)", "body", "pg_catalog.simple", False),
        ("to_tsvector('english'::regconfig, COALESCE(body, ''::text))", "body", "english", True),
        ("to_tsvector('english'::regconfig, evil(body))", None, None, None),
        ("to_tsvector('english'::regconfig, (title || body))", None, None, None),
    ],
)
def test_an_index_on_words_is_read_and_any_other_expression_left_alone(
    definition: str, column: str | None, config: str | None, coalesced: bool | None
) -> None:
    found = read_text_index("i", "tsvector_ops", None, definition)
    assert (found and found.column, found and found.config, found and found.coalesced) == (column, config, coalesced)


def test_the_configuration_of_a_generated_column_is_read() -> None:
    assert config_of("to_tsvector('english'::regconfig, (text)::text)") == "english"
    assert config_of("setweight(to_tsvector('german'::regconfig, title), 'A'::\"char\")") == "german"
    assert config_of("'a b'::tsvector") == ""


def test_what_the_operator_fixes_holds_without_a_filter() -> None:
    made = fixed_condition(TableMapping("t", only={"who": "me", "year": 2024.0}), COLUMNS, "")
    assert made.filtered
    assert sorted(map(str, made.parameters.values())) == ["['me']", "[2024]"]
    assert not fixed_condition(TableMapping("t"), COLUMNS, "").filtered


@given(st.lists(st.floats(0, 5_000), max_size=30), st.integers(1, 6_000))
def test_the_rarest_terms_lead_within_the_budget(frequencies: list[float], budget: int) -> None:
    terms = [Term(f"t{number}", "q", 1.0, frequency) for number, frequency in enumerate(frequencies)]
    chosen = leading(terms, budget)
    held = sorted(frequency for frequency in frequencies if frequency > 0)
    assert [term.frequency for term in chosen] == held[: len(chosen)]
    assert sum(term.frequency for term in chosen) <= budget
    if len(chosen) < len(held):
        assert sum(held[: len(chosen) + 1]) > budget
    assert all(term.idf(1000) >= 0.0 for term in terms)


@given(st.one_of(st.none(), st.text(), st.sampled_from(["[1]", '"x"', "null", '{"a": 1, "_node_content": "x"}'])))
def test_metadata_are_an_object_whatever_the_column_holds(text: str | None) -> None:
    found = shown_metadata(text, {"year": 2024, "gone": None})
    assert found["year"] == 2024
    assert not {"gone", "_node_content"} & set(found)
