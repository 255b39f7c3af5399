"""Routing policies: the settings' defaults, overridden per tenant at run time, shared by all replicas."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog
from psycopg.types.json import Jsonb

from router.decide import Policy
from standard.database.pool import transaction
from standard.domain.errors import FailedPrecondition, PointsmanError
from standard.domain.question import Route

if TYPE_CHECKING:
    import datetime as dt

    from standard.database.pool import Pool

REFRESH_SECONDS = 2.0
_log = structlog.get_logger("pointsman.policy")


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy and its place in history; version 0 = the settings' defaults, never changed."""

    policy: Policy
    version: int
    updated_at: dt.datetime | None


class PolicyStore:
    """Keeps every policy in memory and follows the table; an unreachable database leaves the last known ones in force.

    `default` is the settings' policy; the row of tenant '' overrides it for everyone, a tenant's own row for that
    tenant.
    """

    def __init__(self, pool: Pool, default: Policy) -> None:
        self._pool = pool
        self.default = default
        self._stored: dict[str, StoredPolicy] = {}

    def policy(self, tenant: str) -> Policy:
        """The policy in force for a tenant; no waiting."""
        stored = self._stored.get(tenant) or self._stored.get("")
        return stored.policy if stored else self.default

    def stored(self, tenant: str) -> StoredPolicy:
        """The policy in force with its version: of the tenant's own row, '' the row of all."""
        return self._stored.get(tenant) or StoredPolicy(self.policy(tenant), 0, None)

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

    async def update(self, tenant: str, policy: Policy, expected_version: int, by: str) -> StoredPolicy:
        """Replace a policy; FailedPrecondition when its version is not `expected_version` (0 = any)."""
        body = asdict(policy) | {"safe_route": policy.safe_route.value}
        async with transaction(self._pool) as connection:
            cursor = await connection.execute(
                """
                insert into routing_policy (tenant, policy, version, updated_by) values (%s, %s, 1, %s)
                on conflict (tenant) do update
                set policy = excluded.policy, version = routing_policy.version + 1, updated_at = now(),
                    updated_by = excluded.updated_by
                where %s = 0 or routing_policy.version = %s
                returning version
                """,
                (tenant, Jsonb(body), by, expected_version, expected_version),
            )
            row = await cursor.fetchone()
            if row is None:
                raise FailedPrecondition(
                    f"the policy of {tenant or 'all tenants'} is not at version {expected_version}; read it again"
                )
        await self.refresh()
        return self.stored(tenant)

    def _decode(self, body: Any) -> Policy:  # noqa: ANN401 - whatever the table holds
        if not isinstance(body, dict):
            raise TypeError("it is no object")
        known = {key: value for key, value in body.items() if key in Policy.__dataclass_fields__}
        policy = replace(self.default, **(known | {"safe_route": Route(known.get("safe_route", "standard"))}))
        for name, value in asdict(policy).items():
            if name not in {"safe_route", "max_agentic_share"} and not isinstance(value, int | float):
                raise TypeError(f"{name} is {value!r}")
        if not isinstance(policy.max_agentic_share, int | float | None):
            raise TypeError(f"max_agentic_share is {policy.max_agentic_share!r}")
        return policy
