"""What `pointsman doctor` says of tables of your own: those that are mapped, and those that a database holds.

Everything is read with select alone, within seconds however large the tables are.
"""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from router.configs import database_config, embedder_config
from router.doctor.finding import Finding
from router.settings import BadSettings
from router.tables import table_mapping
from standard.database.migrate import MINIMUM_PGVECTOR
from standard.database.pool import connection, make_pool, translated_errors
from standard.domain.errors import PointsmanError
from standard.embedding.factory import open_embedder
from standard.foreign.discover import (
    agreement,
    collections_of,
    find_tables,
    index_is_used,
    propose,
    sample,
    upkeep,
)
from standard.foreign.mapping import LAYOUTS, TableMapping, recognise
from standard.foreign.view import TableView, describe, measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.settings import Settings
    from standard.database.pool import Pool
    from standard.embedding.protocol import Embedder
    from standard.foreign.catalogue import Table
    from standard.foreign.discover import Proposal

DEAD_SHARE = 0.2
"""Beyond this share of dead rows a table wants a vacuum."""
SMALL_TABLE = 5_000
"""Up to so many rows the planner may well read the whole table although there is an index."""
SAME_MODEL = 0.9
"""Median cosine from which a text's own vector counts as made by the same model."""
RELATED_MODEL = 0.5
"""Below it the model is another; in between the text was perhaps embedded with something added to it."""
_KNOWN_LENGTHS = {
    384: "all-MiniLM-L6-v2 (builtin), bge-small, e5-small",
    768: "all-mpnet-base-v2, bge-base, e5-base, nomic-embed-text",
    1024: "bge-large, e5-large, bge-m3, mxbai-embed-large",
    1536: "openai:text-embedding-3-small, openai:text-embedding-ada-002",
    3072: "openai:text-embedding-3-large",
}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


async def examine_tables(settings: Settings, pool: Pool | None, embedder: Embedder | None) -> list[Finding]:
    """Look at the tables that the settings map. `pool` is of the gateway's database, `embedder` its own."""
    findings: list[Finding] = []
    for name, table in settings.tables.items():
        async with AsyncExitStack() as stack:
            try:
                mapping = table_mapping(name, table)
                theirs = embedder
                if table.embedder is not None:
                    theirs = await stack.enter_async_context(open_embedder(embedder_config(table.embedder)))
                url = table.url.get_secret_value() if table.url else ""
                where = await _pool(url, settings, stack) if url else pool
                if theirs is None or where is None:
                    findings.append(Finding("table", "failed", f"{name}: not looked at", "mend what failed above"))
                    continue
                findings.append(await _mapped(where, mapping, theirs))
            except BadSettings as error:
                findings.append(Finding("table", "failed", error.problems[0], "see docs/tables.md"))
            except PointsmanError as error:
                findings.append(Finding("table", "failed", error.message, "see docs/tables.md", {"name": name}))
    return findings


async def examine_database(settings: Settings, url: str) -> list[Finding]:
    """Look for tables with embeddings in a database and propose how to map them; never raises for what is wrong."""
    findings: list[Finding] = []
    async with AsyncExitStack() as stack:
        try:
            pool = await _pool(url, settings, stack)
            findings.append(await _server(pool))
            tables = await find_tables(pool)
        except PointsmanError as error:
            return [*findings, Finding("database", "failed", error.message, "check the URL and the role")]
        if not tables:
            findings.append(Finding("tables", "warning", "no table or view has a column of type vector or halfvec"))
        embedder: Embedder | None = None
        try:
            embedder = await stack.enter_async_context(open_embedder(embedder_config(settings.embedding)))
        except PointsmanError as error:
            findings.append(Finding("embedder", "warning", f"{error.message}; models are not compared"))
        taken: set[str] = set()
        for table in tables:
            findings += await _found(pool, table, embedder, taken)
    return findings


async def _pool(url: str, settings: Settings, stack: AsyncExitStack) -> Pool:
    config = replace(database_config(settings), url=url, min_size=0, max_size=2, application_name="pointsman-doctor")
    pool = make_pool(url, config)
    with translated_errors():
        await pool.open(wait=False)
    stack.push_async_callback(pool.close)
    return pool


async def _server(pool: Pool) -> Finding:
    async with connection(pool) as conn:
        row = await (
            await conn.execute(
                "select current_setting('server_version'), current_user,"
                " (select extversion from pg_extension where extname = 'vector')"
            )
        ).fetchone()
    assert row is not None  # noqa: S101 - a select without a table has one row
    version, role, pgvector = row
    facts = {"postgresql": version, "pgvector": pgvector, "role": role}
    found = f"PostgreSQL {version}, pgvector {pgvector or 'missing'}, as {role}"
    if pgvector is None:
        return Finding(
            "database", "failed", found, "there are no embeddings without pgvector; is it this database?", facts
        )
    numbers = tuple(int(part) for part in re.findall(r"\d+", pgvector))
    if numbers < MINIMUM_PGVECTOR:
        wanted = ".".join(map(str, MINIMUM_PGVECTOR))
        advice = (
            f"pgvector before {wanted} has known faults, before 0.8 filters cost time: alter extension vector update"
        )
        return Finding("database", "warning", found, advice, facts)
    return Finding("database", "ok", found, facts=facts)


async def _found(pool: Pool, table: Table, embedder: Embedder | None, taken: set[str]) -> list[Finding]:
    if not table.readable:
        advice = f"grant select on {table.full_name} to the role"
        return [Finding("table", "warning", f"{table.full_name}: this role may not read it", advice)]
    layout = recognise(frozenset(table.columns))
    collections = [""]
    if layout is not None and layout.name == "langchain":
        collections = await collections_of(pool, table)
        if not collections:
            found = f"{table.full_name}: {layout.library}, but no collection that this role can read"
            return [Finding("table", "warning", found, f"grant select on {table.schema}.langchain_pg_collection")]
    proposals = [each for name in collections for each in propose(table, collection=name)]
    return [await _proposed(pool, _named_apart(proposal, taken), embedder) for proposal in proposals]


def _named_apart(proposal: Proposal, taken: set[str]) -> Proposal:
    """The proposal under a name that no other has; `taken` remembers it."""
    first = name = proposal.mapping.name
    number = 1
    while name in taken:
        number += 1
        name = f"{first[:120]}-{number}"
    taken.add(name)
    return replace(proposal, mapping=replace(proposal.mapping, name=name))


async def _proposed(pool: Pool, proposal: Proposal, embedder: Embedder | None) -> Finding:
    toml = proposal_toml(proposal)
    facts: dict[str, Any] = {"name": proposal.mapping.name, "mapping": toml, "guessed": list(proposal.guessed)}
    lenient = replace(proposal.mapping, nulls="skip")
    try:
        lengths = await measure(pool, lenient)
        if len(lengths) > 1:
            found = f"{proposal.mapping.name}: its vectors have {' and '.join(map(str, lengths))} dimensions"
            advice = f"only vectors of one length can be searched together: name one model's rows by `only`\n{toml}"
            return Finding("table", "failed", found, advice, facts)
        view = await describe(pool, lenient, lengths[0] if lengths else 0, "")
        return await _looked_at(pool, view, embedder, facts, toml)
    except PointsmanError as error:
        return Finding("table", "failed", error.message, f"correct the mapping, which was guessed:\n{toml}", facts)


async def _mapped(pool: Pool, mapping: TableMapping, embedder: Embedder) -> Finding:
    view = await describe(pool, mapping, embedder.dimensions, embedder.id)
    return await _looked_at(pool, view, embedder, {"name": mapping.name}, "")


async def _looked_at(
    pool: Pool, view: TableView, embedder: Embedder | None, facts: dict[str, Any], toml: str
) -> Finding:
    table, mapping = view.table, view.mapping
    kept = await upkeep(pool, table)
    used = await index_is_used(pool, view)
    problems = list(view.warnings)
    advice: list[str] = []
    if view.dimensions < 1:
        problems.append("it has no rows with an embedding yet")
    elif view.index is not None and not used and view.corpus_size > SMALL_TABLE:
        problems.append(f"the planner does not use {view.index.name} for a search")
        advice.append(f"analyze {table.full_name}")
    if kept.dead_share > DEAD_SHARE:
        problems.append(f"{kept.dead_share:.0%} dead rows")
        advice.append(f"vacuum analyze {table.full_name}")
    if not kept.analysed and table.kind in {"r", "p"} and view.corpus_size > SMALL_TABLE:
        problems.append("it was never analysed")
        advice.append(f"analyze {table.full_name}")
    status, said, agree = await _model(pool, view, embedder)
    layout = LAYOUTS.get(mapping.layout)
    facts |= {
        "table": table.full_name,
        "layout": mapping.layout,
        "collection": mapping.collection,
        "rows": view.corpus_size,
        "bytes": table.bytes,
        "embedding": mapping.embedding,
        "type": table.columns[mapping.embedding].type,
        "dimensions": max(view.dimensions, 0),
        "distance": view.distance,
        "index": view.index.name if view.index else None,
        "operator_class": view.index.operator_class if view.index else None,
        "index_used": used,
        "null_embeddings": view.nulls,
        "dead_share": round(kept.dead_share, 4),
        "analysed": kept.analysed,
        "text_index": view.lexical.index if view.lexical else None,
        "pgvector": ".".join(map(str, table.pgvector)),
        "embedder": embedder.id if embedder else None,
        "agreement": None if agree is None else round(agree, 3),
        "warnings": problems,
    }
    kind = layout.library if layout else "your own columns"
    shape = f"{facts['type']}({facts['dimensions']})"
    found = f"{mapping.name}: {table.full_name}, {kind}, about {view.corpus_size} rows, {shape}; {said}"
    if problems:
        found += "; " + "; ".join(problems)
        status = "warning" if status == "ok" else status
    if toml and view.nulls:
        toml += '\nnulls = "skip"  # rows without an embedding are not found by meaning'
        facts["mapping"] = toml
    if toml:
        advice.append(f"to search it, put this into pointsman.toml:\n{toml}")
    return Finding("table", status, found, "; ".join(dict.fromkeys(advice)), facts)


async def _model(pool: Pool, view: TableView, embedder: Embedder | None) -> tuple[Any, str, float | None]:
    """Whether the embedder is the one that the table was filled with: status, sentence, median cosine."""
    if embedder is None or view.dimensions < 1:
        return "ok", "the model was not compared", None
    wanted = f"name the model of the table in [tables.{view.mapping.name}.embedder]"
    if embedder.dimensions != view.dimensions:
        hint = _KNOWN_LENGTHS.get(view.dimensions, "")
        models = f"; models of that length: {hint}" if hint else ""
        said = f"its vectors are not of the embedder {embedder.id} ({embedder.dimensions} dimensions): {wanted}{models}"
        return "warning", said, None
    texts, stored = await sample(pool, view)
    found = agreement(stored, await embedder.embed_queries(texts)) if texts else None
    if found is None:
        return "ok", "too few rows to compare the model", None
    if found >= SAME_MODEL:
        return "ok", f"made with {embedder.id} (median cosine {found:.2f})", found
    if found >= RELATED_MODEL:
        said = f"perhaps made with {embedder.id}, with something added to the text (median cosine {found:.2f})"
        return "warning", said, found
    said = f"not made with {embedder.id} (median cosine {found:.2f}): {wanted}"
    return "failed", said, found


def proposal_toml(proposal: Proposal) -> str:
    """The section of a mapping for pointsman.toml; what was guessed is marked."""
    mapping = proposal.mapping
    lines = [f"[tables.{_key(mapping.name)}]", '# url = "postgresql://reader:...@host/database"']
    plain: Sequence[tuple[str, Any]] = (
        ("layout", mapping.layout),
        ("table", mapping.table),
        ("collection", mapping.collection),
        ("content", mapping.content),
        ("embedding", mapping.embedding),
        ("document_id", _several(mapping.document_id)),
        ("title", _several(mapping.title)),
        ("uri", _several(mapping.uri)),
        ("position", _several(mapping.position)),
        ("metadata", mapping.metadata),
        ("tenant_column", mapping.tenant_column),
    )
    for key, value in plain:
        if value:
            mark = "  # a guess by its name: look it over" if key in proposal.guessed else ""
            lines.append(f"{key} = {_value(value)}{mark}")
    if proposal.filters:
        pairs = ", ".join(f"{_key(name)} = {_value(name)}" for name in proposal.filters)
        lines.append(f"# filters = {{ {pairs} }}")
    lines.append("# what it was filled with, where it is not the model of [embedding]:")
    lines.append('# embedder = { model = "openai:text-embedding-3-small", base_url = "https://..." }')
    return "\n".join(lines)


def _several(fields: Sequence[object]) -> list[str] | str:
    texts = [str(each) for each in fields]
    return texts[0] if len(texts) == 1 else texts


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: str | list[str]) -> str:
    """A string or a list of strings in TOML, whose basic strings are JSON's, except that DEL is to be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
