"""[tables.NAME] is checked at the start; the catalogue merges tables and collections page by page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.settings import BadSettings, load_settings, masked
from router.tables import table_mapping, tables_on_page
from standard.corpus.paging import read_token, write_token
from standard.foreign.dispatch import ForeignTable, Tables
from standard.foreign.mapping import Field, TableMapping

if TYPE_CHECKING:
    from standard.foreign.retriever import ForeignRetriever


def mapping_of(tmp_path: Path, **keys: object) -> TableMapping:
    settings = load_settings(data_dir=tmp_path, tables={"handbook": keys})
    return table_mapping("handbook", settings.tables["handbook"])


def test_a_section_becomes_a_mapping(tmp_path: Path) -> None:
    found = mapping_of(
        tmp_path,
        table="docs.pages",
        content="body",
        title=["meta->title", "slug"],
        uri="meta->loc->url",
        filters={"year": "published_year"},
        only={"draft": False, "year": 2024, "lang": "en"},
        tenant_column="org",
    )
    assert found.schema_and_table == ("docs", "pages")
    assert found.title == (Field("meta", ("title",)), Field("slug"))
    assert found.uri == (Field("meta", ("loc", "url")),)
    assert found.only == {"draft": False, "year": 2024.0, "lang": "en"}
    assert found.only["draft"] is False
    assert found.open_to("anyone")


def test_a_table_is_the_default_tenants_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert [mapping_of(tmp_path, layout="haystack").open_to(who) for who in ("default", "acme")] == [True, False]
    acme = mapping_of(tmp_path, layout="haystack", tenant="acme")
    assert [acme.open_to(who) for who in ("default", "acme")] == [False, True]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, r"tables\.handbook\.table: is empty"),
        ({"layout": "langchain"}, r"tables\.handbook\.collection: is empty"),
        ({"layout": "mine"}, r"tables\.handbook\.layout .*'table', 'langchain'"),
        ({"table": "x", "title": "->y"}, r"tables\.handbook\.title"),
        ({"table": "x", "content": "c" * 64}, r"tables\.handbook\.content.*63 bytes"),
        ({"table": "x", "contnet": "c"}, r"tables\.handbook\.contnet"),
        ({"table": "x", "distance": "dot"}, r"tables\.handbook\.distance"),
        ({"table": "x", "nulls": "maybe"}, r"tables\.handbook\.nulls"),
        ({"table": "x", "embedder": {"modle": "m"}}, r"tables\.handbook\.embedder\.modle"),
    ],
)
def test_a_bad_section_is_refused_by_its_key(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSettings, match=said):
        mapping_of(tmp_path, **keys)


def test_a_name_that_no_collection_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="tables"):
        load_settings(data_dir=tmp_path, tables={"no good": {"layout": "haystack"}})


def test_the_file_and_the_environment_meet_in_one_section_and_secrets_are_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pointsman.toml"
    file.write_text('[tables.handbook]\nlayout = "haystack"\n[tables.handbook.embedder]\nmodel = "openai:m"\n')
    monkeypatch.setenv("POINTSMAN_CONFIG", str(file))
    monkeypatch.setenv("POINTSMAN_TABLES__HANDBOOK__URL", "postgresql://reader:hidden@h/d")
    monkeypatch.setenv("POINTSMAN_TABLES__HANDBOOK__EMBEDDER__API_KEY", "hidden too")
    settings = load_settings()
    table = settings.tables["handbook"]
    assert table.url is not None
    assert table.url.get_secret_value() == "postgresql://reader:hidden@h/d"
    assert table.embedder is not None
    assert table.embedder.model == "openai:m"
    assert "hidden" not in repr(masked(settings)) + repr(settings)


class _Fake:
    """A retriever of which only the mapping is asked."""

    def __init__(self, name: str) -> None:
        self.mapping = TableMapping(name, table="x")


def tables_named(names: set[str]) -> Tables:
    retrievers: dict[str, Any] = {name: _Fake(name) for name in names}
    library: Any = None

    def table(retriever: ForeignRetriever) -> ForeignTable:
        return ForeignTable(retriever, library)

    return Tables({name: table(retriever) for name, retriever in retrievers.items()})


names = st.sets(st.text("abcdef", min_size=1, max_size=3), max_size=12)


@given(own=names, foreign=names, size=st.integers(1, 5))
def test_pages_hold_every_name_once_and_in_order(own: set[str], foreign: set[str], size: int) -> None:
    tables, seen, token = tables_named(foreign), list[str](), ""
    while True:
        after = read_token(token)
        rest = sorted(name for name in own if name > after)
        own_token = write_token(rest[size - 1]) if len(rest) > size else ""
        page, token = tables_on_page(tables, "default", size, token, rest[:size], own_token)
        assert len(page) <= size
        seen += page
        if not token:
            break
    assert seen == sorted(own | foreign)
