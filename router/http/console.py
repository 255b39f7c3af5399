"""The operator's console: one page at `/`, and the JSON under `/console/api/` that it reads.

The page itself is open to everybody, like any log-in page; what it shows is not. Questions and traces of others need
the role admin, as GetTrace does; without it a list tells how runs went, not what was asked nor by which id one could
read them. Saving a threshold is AdminService's use case on the caller's own tenant.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from router.grpc.validate import fraction, identifier
from router.http.app import Served, fail_plain
from router.http.console_access import require_write
from router.http.console_page import page_paths
from router.http.console_routing import summary
from router.http.values import a_number, an_integer, only
from router.http.wire import JSON, to_json_bytes, while_present
from router.journal.codec import EventCodec
from router.journal.finished import FinishedRun, finished_runs
from router.journal.listing import MAX_PAGE, latest_runs
from router.tables import tables_on_page
from standard.corpus.collections import list_collections
from standard.corpus.paging import read_token, write_token
from standard.domain.errors import FailedPrecondition, InvalidInput, NotFound, Overloaded, PointsmanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.access.identity import Identity
    from router.http.asking import Call, HttpParts
    from router.journal.listing import ListedRun
    from router.journal.store import Journal
    from router.routing.policy import PolicyStore, StoredPolicy
    from standard.corpus.collections import Collection
    from standard.database.pool import Pool
    from standard.foreign.dispatch import ForeignTable, Tables

RUNS: Final = 20
"""Runs of a page where none are asked for."""
COUNTED, MAX_COUNTED = 500, 1000
"""Runs that the histogram is made of where none are asked for, and at most."""
COLLECTIONS: Final = 50
TRACE_ENTRIES: Final = 500
"""Entries of a trace in one response; `after` continues it."""
_AT_ONCE, _WAITING = 2, 32
_SECONDS: Final = 15.0
_RUN_ID = re.compile(r"[1-9][0-9]{0,18}")
_HEADERS: Final = (
    ("cache-control", "no-store"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("cross-origin-resource-policy", "same-origin"),
)


class PolicyChanged(FailedPrecondition):
    """Somebody else saved the policy since the caller read it."""

    http_status = 409
    reason = "POLICY_CHANGED"


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """What the console reads beside the façades' parts."""

    pool: Pool
    journal: Journal
    policies: PolicyStore
    tables: Tables


def console_paths(parts: ConsoleParts) -> list[Served]:
    """The page, its files, and its JSON."""
    console = _Console(parts)
    reads = {
        "/console/api/about": console.about,
        "/console/api/runs": console.runs,
        "/console/api/runs/{request_id:path}": console.trace,
        "/console/api/routing": console.routing,
        "/console/api/collections": console.collections,
        "/console/api/dependencies": console.dependencies,
    }
    return [
        *page_paths(),
        *(Served("GET", path, handle, fail_plain, reads=False) for path, handle in reads.items()),
        Served("PUT", "/console/api/threshold", console.save_threshold, fail_plain),
    ]


class _Console:
    """The console's endpoints. Few reads go on at once, so that no console takes the database from questions."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._parts = parts
        self._codec = EventCodec()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def about(self, parts: HttpParts, call: Call) -> None:
        """Who is asking, what they may do, and the policy in force for them."""
        identity = _arrived(parts, call, frozenset())
        body = {
            "tenant": identity.tenant,
            "admin": _admin(identity),
            "version": version("pointsman"),
            "policy": _policy(self._parts.policies.stored(identity.tenant)),
            "keeps": self._parts.journal.consent,
            "runs_go_on": parts.settings.journal.detach,
            "question_chars": parts.settings.limits.question_chars,
        }
        await _reply(call, body)

    async def runs(self, parts: HttpParts, call: Call) -> None:
        """A page of recent runs: `limit`, `page_token`."""
        async with self._reading(parts, call, frozenset({"limit", "page_token"})) as identity:
            limit = _between(call, "limit", RUNS, MAX_PAGE)
            page = await latest_runs(
                self._parts.pool,
                identity.tenant,
                retention_days=parts.settings.journal.retention_days,
                before=_run_before(call.request.query_params.get("page_token", "")),
                limit=limit,
            )
        kept = self._parts.journal.consent == "text"
        body = {
            "runs": [_run(run, named=_admin(identity), kept=kept) for run in page.runs],
            "next_page_token": "" if page.before is None else write_token(str(page.before)),
        }
        await _reply(call, body)

    async def trace(self, parts: HttpParts, call: Call) -> None:
        """What is kept about a run: `after` continues behind a sequence. For the role admin, like GetTrace."""
        async with self._reading(parts, call, frozenset({"after"})) as identity:
            identity.require("admin")
            after = _between(call, "after", 0, 2**31 - 1, least=0)
            request_id = identifier(call.request.path_params["request_id"], "request_id", required=True)
            stored = await self._parts.journal.load(identity.tenant, request_id, after_sequence=after)
        if stored is None:
            raise NotFound(f"no run {request_id!r}")
        shown = stored.entries[:TRACE_ENTRIES]
        body = {
            "request_id": request_id,
            "state": stored.state,
            "created_at": stored.created_at.isoformat(),
            "question": (stored.question or {}).get("question"),
            "entries": [
                {
                    "sequence": entry.sequence,
                    "seconds": max(0.0, (entry.at - stored.created_at).total_seconds()),
                    "kind": entry.kind,
                    "text": entry.text,
                    "body": entry.body,
                }
                for entry in shown
            ],
            "next_after": shown[-1].sequence if len(stored.entries) > len(shown) else None,
        }
        await _reply(call, body)

    async def routing(self, parts: HttpParts, call: Call) -> None:
        """How the last `limit` ended runs were routed: a histogram of their probabilities, and verdicts."""
        async with self._reading(parts, call, frozenset({"limit"})) as identity:
            limit = _between(call, "limit", COUNTED, MAX_COUNTED)
            await self._parts.policies.refresh()
            stored = self._parts.policies.stored(identity.tenant)
            runs = finished_runs(
                self._parts.pool,
                self._codec,
                retention_days=parts.settings.journal.retention_days,
                tenant=identity.tenant,
            )
            found: list[FinishedRun] = []
            async with aclosing(runs):
                async for run in runs:
                    # The question may be long, and nothing here needs it.
                    found.append(replace(run, question=None))
                    if len(found) >= limit:
                        break
        await _reply(call, {"runs": len(found), "policy": _policy(stored), **summary(found)})

    async def collections(self, parts: HttpParts, call: Call) -> None:
        """A page of the tenant's collections: `page_token`."""
        async with self._reading(parts, call, frozenset({"page_token"})) as identity:
            tenant, token = identity.tenant, call.request.query_params.get("page_token", "")
            page = await list_collections(self._parts.pool, tenant, page_size=COLLECTIONS, page_token=token)
            own = {each.name: each for each in page.collections}
            names, following = tables_on_page(
                self._parts.tables, tenant, COLLECTIONS, token, list(own), page.next_page_token
            )
            listed = []
            for name in filter(identity.sees, names):
                table = self._parts.tables.of(tenant, name)
                listed.append(_collection(own[name]) if table is None else await _table(table, tenant))
        await _reply(call, {"collections": listed, "next_page_token": following})

    async def dependencies(self, parts: HttpParts, call: Call) -> None:
        """Whether the gateway can serve, and each dependency's last known state; asks no database."""
        _arrived(parts, call, frozenset())
        serving, up = await parts.ready()
        await _reply(call, {"serving": serving, "dependencies": dict(up)})

    async def save_threshold(self, parts: HttpParts, call: Call) -> None:
        """Save a threshold for the caller's tenant, if the policy is still of the version that they saw (0 = none)."""
        identity = _arrived(parts, call, frozenset())
        require_write(call.request.headers)
        identity.require("admin")
        only(call.body, frozenset({"threshold", "expected_version"}))
        threshold = a_number(call.body.get("threshold"), "threshold")
        expected = an_integer(call.body.get("expected_version"), "expected_version")
        if threshold is None or expected is None:
            raise InvalidInput("expected_version" if expected is None else "threshold", "is missing")
        if expected < 0:
            raise InvalidInput("expected_version", "is negative")
        policies, tenant = self._parts.policies, identity.tenant
        fraction(threshold, "threshold")
        await policies.refresh()
        policy = replace(policies.own(tenant), threshold=threshold)
        try:
            # AdminService's 0 is "whatever is there"; here it is "there was none", which no version equals.
            stored = await policies.update(tenant, policy, expected or -1, by=identity.name or tenant)
        except FailedPrecondition:
            await policies.refresh()
            now = policies.stored(tenant)
            raise PolicyChanged(
                f"somebody saved the policy meanwhile: it is at version {now.version} with threshold"
                f" {now.policy.threshold:g}, you saw version {expected}; read it again, then save"
            ) from None
        await _reply(call, {"policy": _policy(stored)})

    @asynccontextmanager
    async def _reading(self, parts: HttpParts, call: Call, known: frozenset[str]) -> AsyncIterator[Identity]:
        """Check a read and hold one of the places for it; it ends with its time, or when the client goes away."""
        identity = _arrived(parts, call, known)
        if self._waiting >= _WAITING:
            raise Overloaded("too many reads of the console wait; try again shortly", retry_after_seconds=1.0)
        self._waiting += 1
        try:
            async with asyncio.timeout(_SECONDS), while_present(call.request.receive, call.reply), self._places:
                yield identity
        finally:
            self._waiting -= 1


def _arrived(parts: HttpParts, call: Call, known: frozenset[str]) -> Identity:
    """Check a call's parameters; return who calls."""
    given = call.request.query_params
    only(dict(given), known)
    for name in given:
        if len(given.getlist(name)) > 1:
            raise InvalidInput(name, "is given twice")
    identity = parts.identify(call.request)
    assert identity.tenant  # noqa: S101 - an empty one would mean all tenants to the journal
    return identity


def _between(call: Call, name: str, default: int, most: int, *, least: int = 1) -> int:
    text = call.request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise InvalidInput(name, f"must be a whole number from {least} to {most}")
    return int(text)


def _run_before(token: str) -> int | None:
    key = read_token(token)
    if not key:
        return None
    if not _RUN_ID.fullmatch(key) or int(key) > 2**62:
        raise InvalidInput("page_token", "is none that this list gave out; leave it empty to start over")
    return int(key)


def _admin(identity: Identity) -> bool:
    return "admin" in identity.roles


def _policy(stored: StoredPolicy) -> dict[str, Any]:
    policy = stored.policy
    return {
        "threshold": policy.threshold,
        "max_agentic_share": policy.max_agentic_share,
        "safe_route": policy.safe_route.value,
        "version": stored.version,
        "updated_at": None if stored.updated_at is None else stored.updated_at.isoformat(),
    }


def _run(run: ListedRun, *, named: bool, kept: bool) -> dict[str, Any]:
    decision, answer = run.decision or {}, run.answer or {}
    return {
        "request_id": run.request_id if named else None,
        "question": run.question if named and kept else None,
        "collection": run.collection,
        "created_at": run.created_at.isoformat(),
        "state": run.state,
        "chosen": decision.get("route"),
        "reason": decision.get("reason"),
        "complex_probability": decision.get("complex_probability"),
        "threshold": decision.get("threshold"),
        "route": answer.get("route"),
        "outcome": answer.get("outcome"),
        "stop_reason": answer.get("stop_reason"),
        "steps": answer.get("steps"),
        "seconds": answer.get("total_seconds"),
        "cost_usd": answer.get("cost_usd"),
        "rating": run.rating,
        "probe": run.probe,
    }


def _collection(collection: Collection) -> dict[str, Any]:
    return {
        "name": collection.name,
        "table": False,
        "documents": collection.document_count,
        "passages": collection.passage_count,
        "embedder": collection.embedder.id,
        "answer_instructions": collection.style.instructions,
        "answer_language": collection.style.language,
    }


async def _table(table: ForeignTable, tenant: str) -> dict[str, Any]:
    """A table of one's own: of its documents nothing is known, and of its rows nothing where it can't be read now."""
    try:
        rows: int | None = (await table.retriever.view(tenant)).corpus_size
    except PointsmanError:
        rows = None
    name, embedder = table.retriever.mapping.name, table.retriever.embedder.id
    return {
        "name": name,
        "table": True,
        "documents": None,
        "passages": rows,
        "embedder": embedder,
        "answer_instructions": table.style.instructions,
        "answer_language": table.style.language,
    }


async def _reply(call: Call, body: dict[str, Any]) -> None:
    await call.reply.whole(200, to_json_bytes(body), JSON, _HEADERS)
