"""`pointsman doctor` finds tables with embeddings, says what is wrong with them and proposes how to search them."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from router.doctor.tables import examine_database, examine_tables
from router.settings import load_settings
from router.tables import table_mapping
from standard.database.pool import DatabaseConfig, open_pool
from standard.embedding.factory import open_embedder
from tests.integration.foreign.conftest import DIMENSIONS, open_table
from tests.integration.foreign.test_gateway import fill, own_vectors
from tests.integration.foreign.test_large_table import facts_url

if TYPE_CHECKING:
    from pathlib import Path

    from router.doctor.finding import Finding

__all__ = ["facts_url", "own_vectors"]

EXPECTED = {
    "older.langchain_pg_embedding": ("langchain", "cosine", None),
    "public.langchain_pg_embedding": ("langchain", "cosine", None),
    "public.handbook_store": ("langchain-pgvectorstore", "inner_product", "handbook_store_hnsw"),
    "public.data_handbook": ("llamaindex", "cosine", "data_handbook_embedding_idx"),
    "public.data_handbook_half": ("llamaindex", "l2", "data_handbook_half_embedding_idx"),
    "public.haystack_documents": ("haystack", "cosine", "haystack_hnsw_index"),
    "public.library_page": ("table", "l2", "library_page_embedding"),
}


def tables_of(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.part == "table"]


async def test_every_layout_is_found_and_its_proposal_works_as_it_is(layouts_url: str, tmp_path: Path) -> None:
    findings = tables_of(await examine_database(load_settings(data_dir=tmp_path), layouts_url))
    found = {each.facts["table"]: each for each in findings}
    assert {
        name: (each.facts["layout"], each.facts["distance"], each.facts["index"]) for name, each in found.items()
    } == EXPECTED
    assert len({each.facts["name"] for each in findings}) == len(findings)
    for each in findings:
        assert "name the model of the table" in each.found  # 64 dimensions are not the shipped model's
        sections = tomllib.loads(each.facts["mapping"])["tables"]
        settings = load_settings(data_dir=tmp_path, tables=sections)
        ((name, table),) = settings.tables.items()
        mapping = table_mapping(name, table)
        async with open_table(layouts_url, mapping) as retriever:
            assert (await retriever.view()).dimensions == DIMENSIONS


async def test_the_columns_of_ones_own_table_are_guessed_and_marked_as_guesses(
    layouts_url: str, tmp_path: Path
) -> None:
    findings = tables_of(await examine_database(load_settings(data_dir=tmp_path), layouts_url))
    text = next(each.facts["mapping"] for each in findings if each.facts["table"] == "public.library_page")
    section = tomllib.loads(text)["tables"]["library_page"]
    assert section == {
        "layout": "table",
        "table": "library_page",
        "content": "body",
        "document_id": "slug",
        "title": "heading",
        "position": "page_number",
        "tenant_column": "tenant_name",
    }
    assert text.count("a guess by its name") == 5
    assert "# filters = { year" in text


async def test_a_model_that_made_the_vectors_is_told_from_one_that_did_not(
    own_url: str, tmp_path: Path, own_vectors: list[list[float]]
) -> None:
    fill(own_url, own_vectors)
    settings = load_settings(data_dir=tmp_path)
    (made,) = tables_of(await examine_database(settings, own_url))
    assert "made with all-MiniLM" in made.found
    assert made.facts["agreement"] > 0.99
    assert made.facts["text_index"] == "haystack_keyword_index"
    with psycopg.connect(own_url, autocommit=True) as conn:
        conn.execute(
            "update haystack_documents set embedding ="
            " (select array_agg(sin(i * length(content)))::vector from generate_series(1, 384) i)"
        )
    (other,) = tables_of(await examine_database(settings, own_url))
    assert other.status == "failed"
    assert "not made with all-MiniLM" in other.found


async def test_the_use_of_the_index_dead_rows_and_missing_embeddings_are_seen(facts_url: str, tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)
    whole = tables_of(await examine_database(settings, facts_url))
    assert {each.facts["embedding"]: each.facts["index_used"] for each in whole} == {"embedding": True, "listed": True}
    assert len({each.facts["name"] for each in whole}) == 2
    with psycopg.connect(facts_url, autocommit=True) as conn:
        conn.execute("create table shabby (like facts including all)")
        conn.execute("alter table shabby set (autovacuum_enabled = off)")
        conn.execute("insert into shabby select * from facts where id < 900")
        conn.execute("update shabby set embedding = null where id < 400")
        conn.execute("select pg_stat_force_next_flush()")
        conn.execute("select count(*) from shabby")
    findings = tables_of(await examine_database(settings, facts_url))
    (shabby,) = [
        each for each in findings if each.facts["table"] == "public.shabby" and each.facts["embedding"] == "embedding"
    ]
    assert shabby.facts["null_embeddings"]
    assert shabby.facts["dead_share"] > 0.2
    assert "vacuum analyze public.shabby" in shabby.advice
    assert tomllib.loads(shabby.facts["mapping"])["tables"][shabby.facts["name"]]["nulls"] == "skip"


async def test_a_database_without_embeddings_without_pgvector_or_without_a_server_is_told(
    empty_database_url: str, own_url: str, tmp_path: Path
) -> None:
    settings = load_settings(data_dir=tmp_path, database={"acquire_timeout_seconds": 0.5})
    without = await examine_database(settings, empty_database_url)
    assert (without[0].status, "pgvector missing" in without[0].found) == ("failed", True)
    empty = await examine_database(settings, own_url)
    assert [each.status for each in empty] == ["ok", "warning"]
    away = await examine_database(settings, "postgresql://nobody@127.0.0.1:1/nothing")
    assert [each.status for each in away] == ["failed"]


async def test_the_gateways_own_tables_are_no_finds(database_url: str, tmp_path: Path) -> None:
    findings = await examine_database(load_settings(data_dir=tmp_path), database_url)
    assert tables_of(findings) == []


async def test_mapped_tables_are_looked_at_with_their_embedder(
    own_url: str, tmp_path: Path, own_vectors: list[list[float]]
) -> None:
    fill(own_url, own_vectors)
    tables: dict[str, Any] = {
        "good": {"layout": "haystack", "url": own_url},
        "gone": {"table": "gone", "content": "x", "url": own_url},
        "late": {"layout": "haystack"},
    }
    settings = load_settings(data_dir=tmp_path, tables=tables)
    async with open_embedder() as embedder, open_pool(DatabaseConfig(url=own_url)) as pool:
        good, gone, late = await examine_tables(settings, pool, embedder)
        (blind, *_) = await examine_tables(settings, None, None)
    assert (good.status, good.facts["agreement"] > 0.99) == ("warning", True)  # no index on so few rows
    assert (gone.status, "there is no table 'gone'" in gone.found) == ("failed", True)
    assert late.status == "warning"
    assert blind.status == "failed"


@pytest.mark.timeout(120)
def test_the_command_prints_it_as_json(layouts_url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "router.cli", "doctor", "--database", layouts_url, "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        env={"POINTSMAN_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": ".:protos"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"]
    assert {each["facts"]["table"] for each in report["findings"] if each["part"] == "table"} == set(EXPECTED)
