"""Looks at each part of an installation and says what it found, and the way out where something is wrong."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from router.configs import database_config, embedding_config, llm_config
from router.doctor.finding import Finding
from router.doctor.tables import examine_tables
from router.process.serverlock import running_server
from standard.corpus.collections import EmbedderIdentity
from standard.database.embedded import programs
from standard.database.migrate import MINIMUM_PGVECTOR, check_schema, parse_version, wall_problem
from standard.database.pool import connection, database_url, open_pool
from standard.domain.errors import FailedPrecondition, PointsmanError
from standard.embedding.factory import open_embedder
from standard.llm.client import OpenAiLlm
from standard.sandbox.scan import shipped_scanner

if TYPE_CHECKING:
    from pathlib import Path

    from router.settings import Settings
    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder

DEAD_TUPLE_SHARE = 0.2
"""Beyond this share of dead rows a table wants a vacuum."""


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything; never raises for what is wrong with the installation."""
    findings = [_server(settings)]
    async with AsyncExitStack() as stack:
        embedder: Embedder | None = None
        try:
            embedder = await stack.enter_async_context(open_embedder(embedding_config(settings)))
            facts = {"id": embedder.id, "checksum": embedder.checksum, "dimensions": embedder.dimensions}
            findings.append(Finding("embedder", "ok", f"{embedder.id}, {embedder.dimensions} dimensions", facts=facts))
        except PointsmanError as error:
            findings.append(Finding("embedder", "failed", error.message, "see the section [embedding] of the settings"))
        findings += await _database(settings, embedder)
    findings.append(_classifier(settings, embedder))
    findings.append(await _llm(settings))
    return findings


def _server(settings: Settings) -> Finding:
    server = running_server(settings.data_dir)
    facts = {"data_dir": str(settings.data_dir), "target": server.target if server else None}
    found = f"runs at {server.target}, process {server.pid}" if server else "none runs on this data directory"
    return Finding("server", "ok", found, facts=facts)


async def _database(settings: Settings, embedder: Embedder | None) -> list[Finding]:
    config = database_config(settings)
    kind = "your server" if config.url else "embedded"
    findings: list[Finding] = []
    try:
        async with database_url(config) as url:
            schema = await _schema(url)
            async with open_pool(config) as pool:
                findings.append(await _versions(pool, kind))
                findings.append(schema)
                if schema.status == "ok":
                    findings.append(await _wall(pool))
                    findings.append(await _verdicts(pool, settings))
                    findings += await _collections(pool, embedder)
                findings += await examine_tables(settings, pool, embedder)
            if not config.url:
                findings.append(_backup(url, settings.data_dir))
    except PointsmanError as error:
        findings.append(Finding("database", "failed", f"{kind}: {error.message}", "check POINTSMAN_DATABASE__URL"))
    return findings


def _backup(url: str, data_dir: Path) -> Finding:
    parts = urlsplit(url)
    address = urlunsplit(parts._replace(netloc=f"{parts.username}@{parts.netloc.rpartition('@')[2]}"))
    password = data_dir / "postgres" / "password"
    command = f'PGPASSWORD="$(cat {password})" {programs() / "pg_dump"} -Fc -f pointsman.dump "{address}"'
    return Finding("backup", "ok", f"while a server runs: {command}", facts={"command": command})


async def _schema(url: str) -> Finding:
    try:
        await check_schema(url)
    except FailedPrecondition as error:
        return Finding("schema", "failed", error.message, "run `pointsman migrate`")
    return Finding("schema", "ok", "fits this release")


async def _versions(pool: Pool, kind: str) -> Finding:
    async with connection(pool) as conn:
        row = await (
            await conn.execute(
                "select current_setting('server_version'),"
                " (select extversion from pg_extension where extname = 'vector'), pg_database_size(current_database())"
            )
        ).fetchone()
    assert row is not None  # noqa: S101 - a select without a table has one row
    version, pgvector, size = row
    facts = {"kind": kind, "postgresql": version, "pgvector": pgvector, "bytes": size}
    found = f"{kind}: PostgreSQL {version}, pgvector {pgvector or 'missing'}, {size / 1e6:.0f} MB"
    if pgvector is None:
        return Finding("database", "failed", found, "install pgvector and run `pointsman migrate`", facts)
    if parse_version(pgvector) < MINIMUM_PGVECTOR:
        return Finding("database", "warning", found, "pgvector before 0.8.4 has known faults; update it", facts)
    return Finding("database", "ok", found, facts=facts)


async def _wall(pool: Pool) -> Finding:
    async with connection(pool) as conn:
        problem = await wall_problem(conn)
    if not problem:
        return Finding("row security", "ok", "in force: what hands out text reads as pointsman_reader")
    advice = "run `pointsman migrate`: it puts it in force, or says what an administrator has to run"
    found = f"not in force ({problem}); tenants are kept apart by the conditions of each query alone"
    return Finding("row security", "warning", found, advice)


async def _verdicts(pool: Pool, settings: Settings) -> Finding:
    rules = shipped_scanner().version
    async with connection(pool) as conn:
        rows = await (
            await conn.execute(
                """
                select tenant, name from (
                    select c.tenant, c.name, g.generation_id,
                        coalesce(nullif(c.settings ->> 'scan_policy', ''), %(policy)s) as policy
                    from collection c join generation g on g.generation_id = c.active_generation
                ) judged
                where exists (
                    select from chunk where chunk.generation_id = judged.generation_id and scan ->> 'rules_version'
                        is distinct from %(rules)s || case policy when 'standard' then '' else '+' || policy end
                )
                order by tenant, name limit 20
                """,
                {"policy": settings.sandbox.policy, "rules": rules},
            )
        ).fetchall()
    facts = {"rules_version": rules, "stale": [f"{tenant}/{name}" for tenant, name in rows]}
    if not rows:
        return Finding("injection scan", "ok", f"every passage was judged by rules {rules}", facts=facts)
    found = f"passages judged by other rules, or under another policy, in {', '.join(facts['stale'])}"
    return Finding("injection scan", "warning", found, "run `pointsman scan --collection NAME --rescan`", facts)


async def _collections(pool: Pool, embedder: Embedder | None) -> list[Finding]:
    async with connection(pool) as conn:
        rows = await (
            await conn.execute(
                """
                select c.tenant, c.name, g.embedder_id, g.embedder_checksum, g.dimensions, g.chunk_count,
                    (select count(*) from document d where d.collection_id = c.collection_id),
                    exists (
                        select 1 from pg_index i join pg_class k on k.oid = i.indexrelid
                        join pg_am a on a.oid = k.relam
                        where a.amname = 'hnsw' and i.indisvalid
                            and i.indrelid = to_regclass(format('chunk_%s', g.generation_id))
                    ),
                    coalesce((
                        select n_dead_tup::float8 / greatest(n_live_tup + n_dead_tup, 1) from pg_stat_user_tables
                        where relid = to_regclass(format('chunk_%s', g.generation_id))
                    ), 0)
                from collection c join generation g on g.generation_id = c.active_generation
                order by c.tenant, c.name limit 1000
                """
            )
        ).fetchall()
    if not rows:
        return [Finding("collections", "ok", "none yet", "run `pointsman ingest PATH`")]
    return [_collection(row, embedder) for row in rows]


def _collection(row: tuple[Any, ...], embedder: Embedder | None) -> Finding:
    tenant, name, embedder_id, checksum, dimensions, passages, documents, indexed, dead = row
    facts = {
        "tenant": tenant,
        "name": name,
        "documents": documents,
        "passages": passages,
        "embedder_id": embedder_id,
        "dimensions": dimensions,
        "indexed": indexed,
        "dead_share": round(dead, 4),
    }
    search = "HNSW index" if indexed else "exact search"
    found = f"{tenant}/{name}: {documents} documents, {passages} passages, {search}, made with {embedder_id}"
    ours = embedder and EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions)
    if ours and ours != EmbedderIdentity(embedder_id, checksum, dimensions):
        advice = "configure the embedder it was made with, or ingest it again into another collection"
        return Finding("collection", "failed", f"{found}; the configured embedder is {ours.id}", advice, facts)
    if dead > DEAD_TUPLE_SHARE:
        return Finding("collection", "warning", f"{found}; {dead:.0%} dead rows", "run VACUUM on the database", facts)
    return Finding("collection", "ok", found, facts=facts)


def _classifier(settings: Settings, embedder: Embedder | None) -> Finding:
    from router.routing.models import ModelLoader

    if embedder is None:
        return Finding("classifier", "warning", "not looked at: the embedder is missing")
    loader = ModelLoader(settings.routing.model, embedder, None)
    try:
        loader.load()
        models = loader.require()
    except PointsmanError as error:
        route = settings.routing.safe_route
        return Finding("classifier", "failed", error.message, f"until it is mended every question goes {route}")
    return Finding("classifier", "ok", f"model {models.version}", facts={"version": models.version})


async def _llm(settings: Settings) -> Finding:
    config = llm_config(settings)
    if config is None:
        advice = "set POINTSMAN_LLM__BASE_URL and POINTSMAN_LLM__MODEL for generated answers"
        return Finding("llm", "warning", "none configured: answers are sentences of the documents", advice)
    try:
        async with OpenAiLlm(config) as llm:
            names = await llm.list_models(5.0)
    except PointsmanError as error:
        return Finding(
            "llm", "failed", error.message, "check POINTSMAN_LLM__BASE_URL; until then answers are extractive"
        )
    known = config.model in names or not names
    facts = {"model": config.model, "models": list(names[:50])}
    if not known:
        return Finding(
            "llm", "warning", f"the server does not list the model {config.model!r}", "check llm.model", facts
        )
    return Finding("llm", "ok", f"model {config.model}", facts=facts)
