"""The recorded tables are what the libraries make, and what the libraries made is read like it."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.conftest import _database
from tests.integration.foreign import recorded
from tests.integration.foreign.conftest import DIMENSIONS, MAPPINGS, embed, open_table
from tests.integration.foreign.test_layouts import QUESTIONS, SCOPE, direct, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from standard.database.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.layouts, pytest.mark.timeout(600)]

MAKER = "tests/integration/foreign/make_layouts.py"
_DESCRIBED = """
select n.nspname || '.' || c.relname, (
        select json_agg(json_build_array(
            a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated,
            pg_get_expr(d.adbin, d.adrelid)
        ) order by a.attname)
        from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    ), (select json_agg(pg_get_indexdef(i.indexrelid) order by pg_get_indexdef(i.indexrelid))
        from pg_index i where i.indrelid = c.oid)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and n.nspname in ('public', 'older') and c.relname <> 'django_migrations'
order by 1
"""


def described(url: str) -> dict[str, Any]:
    with psycopg.connect(url) as conn:
        rows = conn.execute(_DESCRIBED).fetchall()
    return {name: {"columns": columns, "indexes": indexes} for name, columns, indexes in rows}


@pytest.fixture(scope="module")
def real_url(
    embedded_postgres: EmbeddedPostgres, passages: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A database that the libraries themselves made their tables in and filled."""
    python = os.environ.get("POINTSMAN_LAYOUTS_PYTHON", "")
    if not python:
        pytest.fail("POINTSMAN_LAYOUTS_PYTHON names no environment with the libraries; run `make test-layouts`")
    file: Path = tmp_path_factory.mktemp("layouts") / "passages.json"
    file.write_text(json.dumps(passages), "utf-8")

    async def make(url: str) -> None:
        process = await asyncio.create_subprocess_exec(
            python, MAKER, url, str(file), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, complaints = await asyncio.wait_for(process.communicate(), 300)
        assert process.returncode == 0, complaints.decode()[-3000:]
        assert len(out.split()) == 6

    with _database(embedded_postgres, "template0") as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("create extension vector")
        asyncio.run(make(url))
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("analyze")
        yield url


def test_the_recorded_tables_are_those_of_the_libraries(real_url: str, own_url: str) -> None:
    with psycopg.connect(own_url, autocommit=True) as conn:
        conn.execute((recorded.DDL + recorded.DJANGO).replace("{dimensions}", str(DIMENSIONS)).encode())
    assert described(own_url) == described(real_url)


@pytest.mark.parametrize("layout", MAPPINGS)
async def test_what_a_library_made_is_read_with_the_recall_of_direct_sql(real_url: str, layout: str) -> None:
    async with open_table(real_url, MAPPINGS[layout]) as retriever:
        for question in QUESTIONS:
            must, may = direct(real_url, layout, await embed(question), 20)
            found = await nearest(retriever, question, 20)
            assert len(set(found)) == 20
            assert must <= set(found) <= may


@pytest.mark.parametrize("layout", MAPPINGS)
async def test_what_a_library_made_has_documents_titles_and_metadata(real_url: str, layout: str) -> None:
    async with open_table(real_url, MAPPINGS[layout]) as retriever:
        found = await retriever.search(SCOPE, QUESTIONS[0], await embed(QUESTIONS[0]), k=5)
    for item in found.passages:
        number = int(item.passage.text.raw.removeprefix("Unit ").partition(":")[0])
        assert item.passage.document_id == f"doc-{number // 3}"
        assert item.passage.title.raw == f"Manual {number // 3}"
        if layout != "django":
            assert item.passage.uri == f"https://example.org/manual/{number // 3}"
        assert item.passage.metadata["year"] == 2020 + number % 5
