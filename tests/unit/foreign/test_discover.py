"""What is guessed of a table by its names, and how a model is told from its vectors."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.doctor.tables import proposal_toml
from router.settings import load_settings
from router.tables import table_mapping
from standard.corpus.collections import check_name
from standard.foreign.catalogue import Column, Table
from standard.foreign.discover import agreement, propose, section_name
from standard.foreign.rows import decode


def table_of(*columns: Column, name: str = "notes", schema: str = "public", key: str = "id") -> Table:
    by_name = {each.name: each for each in columns}
    return Table(1, schema, name, "r", by_name, key, (), (), 10, 8192, (0, 8, 6), "public", "english")


VECTOR = Column("embedding", "vector", "U", 3)
ID = Column("id", "int8", "N")


def text(name: str) -> Column:
    return Column(name, "text", "S")


def test_names_suggest_what_columns_hold_and_each_column_is_taken_once() -> None:
    columns = [text(name) for name in ("title", "body", "url", "org_id", "lang")]
    (found,) = propose(table_of(ID, VECTOR, *columns, Column("meta", "jsonb", "U"), Column("page", "int4", "N")))
    mapping = found.mapping
    assert (mapping.content, mapping.metadata, mapping.tenant_column) == ("body", "meta", "org_id")
    assert [str(each) for each in (*mapping.title, *mapping.uri, *mapping.position)] == ["title", "url", "page"]
    assert found.filters == ("lang",)
    assert "document_id" not in found.guessed


def test_without_a_telling_name_some_text_is_proposed_and_without_any_none() -> None:
    (found,) = propose(table_of(ID, VECTOR, text("foo")))
    assert found.mapping.content == "foo"
    (bare,) = propose(table_of(ID, VECTOR))
    assert bare.mapping.content == ""


def test_each_column_of_vectors_has_a_proposal_of_its_own() -> None:
    found = propose(table_of(ID, VECTOR, Column("title_vec", "halfvec", "U", 3), text("body"), schema="docs"))
    assert [(each.mapping.embedding, each.mapping.table) for each in found] == [
        ("embedding", "docs.notes"),
        ("title_vec", "docs.notes"),
    ]
    assert len({each.mapping.name for each in found}) == 2


@given(st.text(max_size=200))
def test_any_table_name_makes_a_name_that_a_collection_can_have(name: str) -> None:
    check_name(section_name(name))


@given(
    name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12),
    column=st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\x00->"), min_size=1, max_size=12
    ).filter(lambda text: text == text.strip()),
)
def test_a_proposal_is_read_back_as_it_was(name: str, column: str) -> None:
    (proposal,) = propose(table_of(ID, VECTOR, text(column), name=name.replace(".", "_")))
    sections = tomllib.loads(proposal_toml(proposal))["tables"]
    settings = load_settings(data_dir="x", tables=sections)
    ((key, section),) = settings.tables.items()
    assert table_mapping(key, section) == proposal.mapping


def test_the_same_texts_vectors_agree_and_others_do_not() -> None:
    rows = np.random.default_rng(1).normal(size=(8, 32)).astype(np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert agreement(unit, unit) == pytest.approx(1.0)
    assert abs(agreement(unit, np.roll(unit, 1, axis=0)) or 0.0) < 0.5
    assert agreement(unit[:2], unit[:2]) is None
    assert agreement(unit, unit[:, :16]) is None


def test_vectors_are_decoded_as_postgresql_sends_them() -> None:
    head = (3).to_bytes(2, "big") + b"\x00\x00"
    values = np.array([3.0, 0.0, 4.0])
    for kind, dtype in (("vector", ">f4"), ("halfvec", ">f2")):
        found = decode([head + values.astype(dtype).tobytes()], kind, 3)
        assert found == pytest.approx(np.array([[0.6, 0.0, 0.8]]), abs=1e-3)
    assert decode([], "vector", 3).shape == (0, 3)
