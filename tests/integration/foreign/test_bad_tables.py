"""Tables that are wrong, change, or hold what nobody expects: refused with the way out, or read without harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from standard.domain.errors import DatabaseUnavailable, FailedPrecondition, InvalidInput, NotFound
from standard.domain.filter import Eq, In, Range
from standard.domain.passage import Scope
from standard.foreign import terms
from standard.foreign.mapping import Field, TableMapping, parse_field
from tests.integration.foreign.conftest import DIMENSIONS, MAPPINGS, embed, open_table
from tests.integration.foreign.recorded import vector_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from standard.domain.passage import SearchResult
    from standard.foreign.retriever import ForeignRetriever

SCOPE = Scope(collection="t")
OWN = TableMapping("t", table="notes", content="body")


async def search(retriever: ForeignRetriever, text: str = "pump", scope: Scope = SCOPE, k: int = 10) -> SearchResult:
    return await retriever.search(scope, text, await embed(text), k=k)


async def texts(retriever: ForeignRetriever, scope: Scope = SCOPE, text: str = "pump") -> set[str]:
    return {item.passage.text.raw for item in (await search(retriever, text, scope)).passages}


@pytest.fixture
async def notes(own_url: str) -> str:
    """A table of three notes about pumps."""
    rows = [("a", "The pump is red."), ("b", "The pump is blue."), ("c", "Boilers are hot.")]
    with psycopg.connect(own_url, autocommit=True) as conn:
        conn.execute(f"create table notes (key text primary key, body text, embedding vector({DIMENSIONS}))".encode())
        for key, body in rows:
            conn.execute(
                "insert into notes values (%s, %s, %s)", [key, body, vector_text((await embed(body)).tolist())]
            )
    return own_url


def change(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


async def test_vectors_of_another_length_are_refused(notes: str) -> None:
    async with open_table(notes, OWN, dimensions=12) as retriever:
        with pytest.raises(FailedPrecondition, match=r"have 64 dimensions.*'theirs' 12.*\[tables\.t\.embedder\]"):
            await search(retriever)


async def test_vectors_of_several_lengths_are_refused_where_the_type_allows_them(notes: str) -> None:
    change(notes, "alter table notes alter embedding type vector", "insert into notes values ('d', 'x', '[1,2,3]')")
    async with open_table(notes, OWN) as retriever:
        with pytest.raises(FailedPrecondition, match="have 3 and 64 dimensions"):
            await search(retriever)


async def test_rows_without_an_embedding_are_refused_or_left_out_as_the_mapping_says(notes: str) -> None:
    change(notes, "insert into notes values ('d', 'A pump without a vector.', null)")
    async with open_table(notes, OWN) as retriever:
        with pytest.raises(FailedPrecondition, match=r'no embedding.*nulls = "skip"'):
            await search(retriever)
    async with open_table(notes, TableMapping("t", table="notes", content="body", nulls="skip")) as retriever:
        assert await texts(retriever) == {"The pump is red.", "The pump is blue.", "Boilers are hot."}
    change(notes, "create index on notes using gin (to_tsvector('english', body))")
    async with open_table(notes, TableMapping("t", table="notes", content="body", nulls="skip")) as retriever:
        found = await search(retriever)
    # its words find it all the same, and the evidence ends before it
    assert "A pump without a vector." in {item.passage.text.raw for item in found.passages}
    assert found.vectors is not None
    assert len(found.vectors) == len(found.candidates)


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (TableMapping("t", table="nothing", content="body"), "there is no table 'nothing'"),
        (TableMapping("t", table="elsewhere.notes", content="body"), "there is no table 'elsewhere.notes'"),
        (TableMapping("t", table="notes"), "content is empty.*key, body, embedding"),
        (TableMapping("t", table="notes", content="text"), "content: public.notes has no readable column 'text'"),
        (TableMapping("t", table="notes", content="body", embedding="body"), "is of type text, not vector"),
        (TableMapping("t", table="notes", content="body", embedding="vec"), "no readable column 'vec'"),
        (TableMapping("t", table="notes", content="body", id="nr"), "id: public.notes has no readable column 'nr'"),
        (TableMapping("t", table="notes", content="body", metadata="body"), "of type text, not json"),
        (TableMapping("t", table="notes", content="body", title=(Field("heading"),)), "title: .* 'heading'"),
        (TableMapping("t", table="notes", content="body", title=(Field("body", ("x",)),)), "of type text, not json"),
        (TableMapping("t", table="notes", content="body", tenant_column="who"), "tenant_column: .* 'who'"),
        (TableMapping("t", table="notes", content="body", filters={"year": "jahr"}), "filters: .* 'jahr'"),
        (TableMapping("t", table="notes", content="body", only={"lang": "en"}), "only: .* 'lang'"),
        (TableMapping("t", table="notes", layout="haystack"), "content: .* 'content'"),
    ],
)
async def test_a_mapping_that_does_not_fit_says_which_key_and_what_there_is(
    notes: str, mapping: TableMapping, said: str
) -> None:
    async with open_table(notes, mapping) as retriever:
        with pytest.raises(FailedPrecondition, match=said):
            await search(retriever)


async def test_a_collection_of_langchain_that_is_not_there_is_named(layouts_url: str) -> None:
    async with open_table(layouts_url, TableMapping("t", layout="langchain", collection="nope")) as retriever:
        with pytest.raises(FailedPrecondition, match="none of the name 'nope'"):
            await search(retriever)


async def test_a_table_without_a_key_needs_one_named(own_url: str) -> None:
    change(own_url, f"create table notes (body text, embedding vector({DIMENSIONS}))")
    async with open_table(own_url, OWN) as retriever:
        with pytest.raises(FailedPrecondition, match="no primary key of one column"):
            await search(retriever)


async def test_a_table_that_goes_and_comes_back_is_refused_and_found_again(notes: str) -> None:
    async with open_table(notes, OWN) as retriever:
        assert len(await texts(retriever)) == 3
        change(notes, "alter table notes rename to away")
        with pytest.raises(FailedPrecondition, match="is not what it was"):
            await search(retriever)
        with pytest.raises(FailedPrecondition, match="there is no table 'notes'"):
            await search(retriever)
        change(notes, "alter table away rename to notes")
        retriever._view_until = 0.0  # a failed look holds for some seconds
        assert len(await texts(retriever)) == 3


async def test_a_column_that_goes_is_told_of(notes: str) -> None:
    async with open_table(notes, OWN) as retriever:
        await search(retriever)
        change(notes, "alter table notes drop column body")
        with pytest.raises(FailedPrecondition, match="is not what it was"):
            await search(retriever)


@pytest.fixture
def reader_url(layouts_url: str) -> Iterator[str]:
    """The layouts as a role sees them that may do nothing yet."""
    with psycopg.connect(layouts_url, autocommit=True) as conn:
        conn.execute("create role table_reader login password 'secret'")
    try:
        yield layouts_url.replace(layouts_url.split("//")[1].split("@", maxsplit=1)[0], "table_reader:secret")
    finally:
        with psycopg.connect(layouts_url, autocommit=True) as conn:
            conn.execute("drop owned by table_reader; drop role table_reader")


@pytest.mark.parametrize("layout", MAPPINGS)
async def test_a_role_that_may_only_select_is_enough_and_one_that_may_not_is_told(
    layouts_url: str, reader_url: str, layout: str
) -> None:
    async with open_table(reader_url, MAPPINGS[layout]) as retriever:
        with pytest.raises(FailedPrecondition, match=r"grant|may not read|no table"):
            await search(retriever)
        change(
            layouts_url,
            "grant usage on schema older to table_reader",
            "grant select on all tables in schema public, older to table_reader",
            "alter role table_reader set default_transaction_read_only = on",
        )
    async with open_table(reader_url, MAPPINGS[layout]) as retriever:
        assert len((await search(retriever)).passages) == 10


async def test_the_operator_is_that_of_the_index_whatever_the_mapping_hopes_for(notes: str) -> None:
    change(notes, "create index notes_l2 on notes using hnsw (embedding vector_l2_ops)")
    async with open_table(notes, OWN) as retriever:
        view = await retriever.view()
        assert (view.distance, view.index and view.index.name) == ("l2", "notes_l2")
    pinned = TableMapping("t", table="notes", content="body", distance="cosine")
    async with open_table(notes, pinned) as retriever:
        view = await retriever.view()
        assert (view.distance, view.index) == ("cosine", None)
        assert any("no index serves the distance 'cosine'" in each and "notes_l2" in each for each in view.warnings)
        assert len(await texts(retriever)) == 3
    change(notes, "drop index notes_l2", "create index notes_l1 on notes using hnsw (embedding vector_l1_ops)")
    async with open_table(notes, OWN) as retriever:
        view = await retriever.view()
        assert (view.distance, view.index) == ("cosine", None)
        assert any("search is exact" in each and "notes_l1" in each for each in view.warnings)


async def test_an_index_on_a_cast_serves_a_column_without_dimensions(notes: str) -> None:
    change(
        notes,
        "alter table notes alter embedding type vector",
        f"create index notes_half on notes using hnsw ((embedding::halfvec({DIMENSIONS})) halfvec_cosine_ops)",
    )
    async with open_table(notes, OWN) as retriever:
        view = await retriever.view()
        assert view.index is not None
        assert view.index.cast == ("halfvec", DIMENSIONS)
        assert len(await texts(retriever)) == 3


async def test_a_filter_on_a_key_that_no_row_has_finds_nothing(layouts_url: str) -> None:
    scope = Scope(collection="t", filter=Eq("no such key", "x"))
    async with open_table(layouts_url, MAPPINGS["haystack"]) as retriever:
        assert (await search(retriever, scope=scope)).passages == ()


async def test_a_filter_on_a_key_that_the_mapping_does_not_know_is_refused_where_there_is_no_metadata(
    layouts_url: str,
) -> None:
    scope = Scope(collection="t", filter=Eq("body", "x"))
    async with open_table(layouts_url, MAPPINGS["django"]) as retriever:
        with pytest.raises(InvalidInput, match="cannot be filtered by 'body'; keys it has: added, document_id"):
            await search(retriever, scope=scope)


async def test_columns_are_compared_by_their_type_and_never_across(layouts_url: str) -> None:
    async with open_table(layouts_url, MAPPINGS["django"]) as retriever:
        for condition, count in (
            (Eq("published", False), 100),
            (Eq("published", "false"), 0),
            (Eq("year", 2021.5), 0),
            (Range("added", at_least="2023-01-01", at_most="2023-12-31"), 60),
            (Range("added", at_least="not a date"), 0),
            (In("added", ("2021-05-01T00:00:00+00:00", "nonsense")), 60),
            (Range("year", at_least="2021"), 0),
        ):
            scope = Scope(collection="t", filter=condition)
            found = await search(retriever, scope=scope, k=100)
            assert len(found.passages) == count, condition


async def test_tenants_and_groups_see_their_own_rows(layouts_url: str) -> None:
    django = MAPPINGS["django"]
    mapping = TableMapping(
        "t",
        table="library_page",
        content="body",
        document_id=django.document_id,
        tenant_column="tenant_name",
        groups=(parse_field("readers"),),
    )
    async with open_table(layouts_url, mapping) as retriever:
        for tenant in ("default", "other", "nobody"):
            for groups in (frozenset[str](), frozenset({"engineers"})):
                scope = Scope(tenant=tenant, collection="t", groups=groups)
                found = await search(retriever, "pump lantern crew", scope, k=100)
                numbers = {int(item.passage.text.raw[5:].partition(":")[0]) for item in found.passages}
                for number in numbers:
                    assert tenant == ("default" if number % 4 else "other")
                    assert groups or number % 10 != 7
                assert bool(numbers) == (tenant != "nobody")
    async with open_table(layouts_url, TableMapping("t", layout="haystack", tenant="acme")) as retriever:
        with pytest.raises(NotFound):
            await search(retriever)


async def test_names_and_keys_that_look_like_sql_are_names_and_keys(own_url: str) -> None:
    table, column, key = 'no"tes; drop', "bo'dy %(vector)s {x}", "a'b\"c %s {} ->"
    with psycopg.connect(own_url, autocommit=True) as conn:
        conn.execute(
            sql.SQL("create table {} (id int primary key, {} text, {} jsonb, embedding vector({}))").format(
                sql.Identifier(table), sql.Identifier(column), sql.Identifier("me%ta"), sql.Literal(DIMENSIONS)
            )
        )
        conn.execute(
            sql.SQL("insert into {} values (1, %s, jsonb_build_object(%s::text, %s::text), %s)").format(
                sql.Identifier(table)
            ),
            ["A pump.", key, "it's 100%", vector_text((await embed("A pump.")).tolist())],
        )
    title = (Field("me%ta", (key,)),)
    mapping = TableMapping(
        "t", table=table, content=column, metadata="me%ta", title=title, filters={"x": column}, only={column: "A pump."}
    )
    async with open_table(own_url, mapping) as retriever:
        for condition in (Eq(key, "it's 100%"), Eq("x", "A pump."), In(key, ("it's 100%", "'; drop table"))):
            found = await search(retriever, scope=Scope(collection="t", filter=condition))
            assert [item.passage.title.raw for item in found.passages] == ["it's 100%"]


async def test_values_that_postgresql_cannot_cast_are_told_of(own_url: str) -> None:
    vector = vector_text((await embed("A pump.")).tolist())
    change(
        own_url,
        f"create table notes (id int primary key, body text, meta json, embedding vector({DIMENSIONS}))",
        f"insert into notes values (1, 'A pump.', '{{\"a\": \"\\u0000\"}}', '{vector}')",
    )
    change(own_url, f'insert into notes values (2, \'A pump!\', \'{{"a": "\\ud800", "t": {{"n": 7}}}}\', \'{vector}\')')
    title = (parse_field("meta->t->n"), parse_field("meta->a"))
    mapping = TableMapping("t", table="notes", content="body", metadata="meta", title=title)
    async with open_table(own_url, mapping) as retriever:
        found = await search(retriever)
        assert sorted(item.passage.title.raw for item in found.passages) == ["7", "\N{REPLACEMENT CHARACTER}"]
        with pytest.raises(FailedPrecondition, match="cannot be used as the mapping says"):
            await search(retriever, scope=Scope(collection="t", filter=Eq("a", "b")))


async def test_an_empty_table_finds_nothing_and_is_no_error(own_url: str) -> None:
    change(own_url, f"create table notes (id int primary key, body text, embedding vector({DIMENSIONS}))")
    async with open_table(own_url, OWN) as retriever:
        found = await search(retriever)
    assert (found.passages, found.corpus_size) == ((), 0)
    assert found.vectors is not None
    assert found.vectors.shape == (0, DIMENSIONS)


async def test_vectors_of_zeros_and_rows_without_text_do_no_harm(notes: str) -> None:
    zeros = "[" + ",".join("0" * DIMENSIONS) + "]"
    change(notes, f"insert into notes values ('z', 'zero', '{zeros}'), ('n', null, '{zeros}')")
    async with open_table(notes, OWN) as retriever:
        found = await search(retriever)
    assert {"The pump is red.", "The pump is blue."} <= {item.passage.text.raw for item in found.passages}
    assert all(item.dense_score is None or item.dense_score <= 1.001 for item in found.passages)


async def test_a_database_that_is_away_is_unavailable(own_url: str) -> None:
    away = own_url.replace("port=5432", "port=1").replace(":5432", ":1")
    assert away != own_url
    async with open_table(away, OWN) as retriever:
        retriever._pool.timeout = 0.3
        with pytest.raises(DatabaseUnavailable):
            await search(retriever)


async def test_pgvector_in_a_schema_outside_the_search_path_is_found(own_url: str) -> None:
    vector: dict[str, Any] = {"v": vector_text((await embed("A pump.")).tolist())}
    change(
        own_url,
        "create schema tools",
        "alter extension vector set schema tools",
        f"create table notes (id int primary key, body text, embedding tools.vector({DIMENSIONS}))",
        f"insert into notes values (1, 'A pump.', '{vector['v']}')",
        "create index on notes using hnsw (embedding tools.vector_cosine_ops)",
    )
    async with open_table(own_url, OWN) as retriever:
        assert await texts(retriever) == {"A pump."}


async def test_trigrams_serve_as_the_index_of_words(notes: str) -> None:
    change(notes, "create extension pg_trgm", "create index on notes using gin (body gin_trgm_ops)")
    async with open_table(notes, OWN) as retriever:
        found = await search(retriever, "Are the boilers red?")
        view = await retriever.view()
    assert view.lexical is not None
    assert view.lexical.kind == "trigram"
    lexical = {item.passage.text.raw: item.lexical_score for item in found.passages}
    assert lexical["Boilers are hot."]
    assert lexical["The pump is red."]
    assert lexical["The pump is blue."] is None


async def test_a_terms_frequency_is_counted_once_and_forgotten_with_the_view(notes: str) -> None:
    change(notes, "create index on notes using gin (to_tsvector('english', body))")
    async with open_table(notes, OWN) as retriever:
        first = (await search(retriever)).term_idf["pump"]
        change(
            notes,
            "insert into notes select 'n' || i, 'A pump.', embedding from notes, generate_series(1, 20) i"
            " where key = 'a'",
        )
        assert (await search(retriever)).term_idf["pump"] == first
        assert len(retriever._frequencies) == 1
        retriever._view_until = 0.0
        assert (await search(retriever)).term_idf["pump"] < first


async def test_words_in_more_rows_than_may_be_ranked_find_nothing_by_themselves(
    notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(terms.RANKED_ROWS, "expression", 1)
    change(notes, "create index on notes using gin (to_tsvector('english', body))")
    async with open_table(notes, OWN) as retriever:
        found = await search(retriever, "Is the pump red or are boilers hot?")
    lexical = {item.passage.text.raw: item.lexical_score for item in found.passages}
    # one of the words that stand in one row is within the budget; what else is asked for still counts for its rank
    assert sum(score is not None for score in lexical.values()) == 1
    assert found.term_idf["pump"] < found.term_idf["red"]
