"""Routing policies: the settings' defaults, overridden per tenant at run time, shared by all replicas."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog
from psycopg.types.json import Jsonb

from router.decide import CanaryBy, Policy, Rollout
from standard.database.pool import transaction
from standard.domain.errors import FailedPrecondition, PointsmanError
from standard.domain.question import Route

if TYPE_CHECKING:
    import datetime as dt

    from standard.database.pool import Pool

REFRESH_SECONDS = 2.0
_CHANGE_LOCK = 0x706F6C696379  # "policy"
_log = structlog.get_logger("pointsman.policy")


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy and its place in history; version 0 = the settings' defaults, never changed."""

    policy: Policy
    version: int
    updated_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """Who changed a policy, when, and from what (None: the settings' defaults) to what."""

    tenant: str
    version: int
    before: dict[str, Any] | None
    after: dict[str, Any]
    changed_at: dt.datetime
    changed_by: str


class PolicyStore:
    """Keeps every policy in memory and follows the table; an unreachable database leaves the last known ones in force.

    `default` is the settings' policy; the row of tenant '' overrides it for everyone, a tenant's own row for that
    tenant. The kill switch of '' holds for all.
    """

    def __init__(self, pool: Pool, default: Policy) -> None:
        self._pool = pool
        self.default = default
        self._stored: dict[str, StoredPolicy] = {}

    def policy(self, tenant: str) -> Policy:
        """The policy in force for a tenant; no waiting."""
        stored = self._stored.get(tenant) or self._stored.get("")
        policy = stored.policy if stored else self.default
        everyone = self._stored.get("")
        if everyone is not None and everyone.policy.kill_switch and not policy.kill_switch:
            return replace(policy, kill_switch=True)
        return policy

    def own(self, tenant: str) -> Policy:
        """What a change of the tenant's policy begins from: its own, else that of all without the kill switch."""
        stored = self._stored.get(tenant)
        return stored.policy if stored else replace(self.policy(tenant), kill_switch=False)

    def stored(self, tenant: str) -> StoredPolicy:
        """The tenant's own policy with its version, of '' that of all; version 0 where it has no row."""
        return self._stored.get(tenant) or StoredPolicy(self.own(tenant), 0, None)

    async def refresh(self) -> None:
        """Read the table."""
        async with transaction(self._pool) as connection:
            cursor = await connection.execute("select tenant, policy, version, updated_at from routing_policy")
            rows = await cursor.fetchall()
        stored: dict[str, StoredPolicy] = {}
        for tenant, policy, version, updated_at in rows:
            try:
                stored[tenant] = StoredPolicy(self._decode(policy), version, updated_at)
            except (TypeError, ValueError) as error:  # written by another release, or by hand
                _log.warning(
                    "a routing policy cannot be read; the default is in force", tenant=tenant, error=str(error)
                )
        self._stored = stored

    async def follow(self) -> None:
        """Refresh every few seconds until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except PointsmanError as error:
                _log.warning("routing policies could not be refreshed; the last known stay in force", error=str(error))

    async def changes(self, tenant: str | None = None, *, limit: int = 100) -> list[PolicyChange]:
        """The latest changes, newest first: of all, or of one tenant's policy ('' = that of all tenants)."""
        async with transaction(self._pool) as connection:
            cursor = await connection.execute(
                "select tenant, version, before, after, changed_at, changed_by from routing_policy_change"
                " where %s::text is null or tenant = %s order by change_id desc limit %s",
                (tenant, tenant, limit),
            )
            return [PolicyChange(*row) for row in await cursor.fetchall()]

    async def update(self, tenant: str, policy: Policy, expected_version: int, by: str) -> StoredPolicy:
        """Replace a policy and note who did; FailedPrecondition where its version is another (0: any, -1: none yet)."""
        body = asdict(policy)
        async with transaction(self._pool) as connection:
            # Changes come one after the other, so that each is noted with what it really replaced.
            await connection.execute("select pg_advisory_xact_lock(%s)", (_CHANGE_LOCK,))
            cursor = await connection.execute("select policy from routing_policy where tenant = %s", (tenant,))
            before = await cursor.fetchone()
            cursor = await connection.execute(
                """
                insert into routing_policy (tenant, policy, version, updated_by)
                select %(tenant)s, %(policy)s, 1, %(by)s
                where %(expected)s <= 0 or exists (select 1 from routing_policy where tenant = %(tenant)s)
                on conflict (tenant) do update
                set policy = excluded.policy, version = routing_policy.version + 1, updated_at = now(),
                    updated_by = excluded.updated_by
                where %(expected)s = 0 or routing_policy.version = %(expected)s
                returning version
                """,
                {"tenant": tenant, "policy": Jsonb(body), "by": by, "expected": expected_version},
            )
            row = await cursor.fetchone()
            if row is None:
                raise FailedPrecondition(
                    f"the policy of {tenant or 'all tenants'} is not at version {expected_version}; read it again"
                )
            await connection.execute(
                "insert into routing_policy_change (tenant, version, before, after, changed_by)"
                " values (%s, %s, %s, %s, %s)",
                (tenant, row[0], None if before is None else Jsonb(before[0]), Jsonb(body), by),
            )
        await self.refresh()
        return self.stored(tenant)

    def _decode(self, body: Any) -> Policy:  # noqa: ANN401 - whatever the table holds
        if not isinstance(body, dict):
            raise TypeError("it is no object")
        known = {key: value for key, value in body.items() if key in Policy.__dataclass_fields__}
        words = {
            "safe_route": Route(known.get("safe_route", "standard")),
            "rollout": Rollout(known.get("rollout", self.default.rollout)),
            "canary_by": CanaryBy(known.get("canary_by", self.default.canary_by)),
        }
        policy = replace(self.default, **(known | words))
        for name, value in asdict(policy).items():
            if name not in {*words, "max_agentic_share"} and not isinstance(value, int | float):
                raise TypeError(f"{name} is {value!r}")
        if not isinstance(policy.max_agentic_share, int | float | None):
            raise TypeError(f"max_agentic_share is {policy.max_agentic_share!r}")
        return policy
