"""Policies are shared through the database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from router.decide import Policy
from router.routing.policy import PolicyStore
from standard.domain.errors import FailedPrecondition
from standard.domain.question import Route

if TYPE_CHECKING:
    from standard.database.pool import Pool

DEFAULT = Policy(threshold=0.4)


async def test_another_replica_sees_a_change(pool: Pool) -> None:
    here, there = PolicyStore(pool, DEFAULT), PolicyStore(pool, DEFAULT)
    changed = replace(DEFAULT, threshold=0.7, safe_route=Route.AGENTIC, max_agentic_share=0.2)
    stored = await here.update("", changed, 0, by="test")
    assert (stored.policy, stored.version) == (changed, 1)
    assert there.policy("anyone") == DEFAULT
    await there.refresh()
    assert there.policy("anyone") == changed


async def test_a_tenants_own_policy_wins_over_the_default_of_all(pool: Pool) -> None:
    store = PolicyStore(pool, DEFAULT)
    await store.update("", replace(DEFAULT, threshold=0.7), 0, by="test")
    await store.update("acme", replace(DEFAULT, threshold=0.9), 0, by="test")
    assert (store.policy("acme").threshold, store.policy("other").threshold) == (0.9, 0.7)


async def test_a_change_from_a_stale_version_is_refused(pool: Pool) -> None:
    store = PolicyStore(pool, DEFAULT)
    await store.update("", DEFAULT, 0, by="one")
    await store.update("", replace(DEFAULT, threshold=0.5), 1, by="one")
    with pytest.raises(FailedPrecondition, match="version 1"):
        await store.update("", replace(DEFAULT, threshold=0.6), 1, by="two")
    assert store.policy("").threshold == 0.5


async def test_a_change_of_a_version_that_never_was_is_refused_and_a_first_one_comes_first(pool: Pool) -> None:
    store = PolicyStore(pool, DEFAULT)
    with pytest.raises(FailedPrecondition, match="version 3"):
        await store.update("one", replace(DEFAULT, threshold=0.6), 3, by="one")
    assert store.stored("one").version == 0
    assert (await store.update("one", replace(DEFAULT, threshold=0.6), -1, by="one")).version == 1
    with pytest.raises(FailedPrecondition):
        await store.update("one", replace(DEFAULT, threshold=0.7), -1, by="two")


@pytest.mark.parametrize("policy", ['{"safe_route": "scenic"}', '{"threshold": "high"}', "[]"])
async def test_a_policy_that_cannot_be_read_leaves_the_default_in_force(pool: Pool, policy: str) -> None:
    store = PolicyStore(pool, DEFAULT)
    await store.update("acme", replace(DEFAULT, threshold=0.9), 0, by="test")
    async with pool.connection() as connection:
        await connection.execute(
            "insert into routing_policy (tenant, policy, version) values ('', %s::jsonb, 1)", (policy,)
        )
    await store.refresh()
    assert (store.policy("acme").threshold, store.policy("other")) == (0.9, DEFAULT)
