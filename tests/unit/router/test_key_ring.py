"""How long a key is known, and what happens while the database is away."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import replace

import pytest

from router.access.auth import FRESH_SECONDS, STALE_SECONDS, KeyRing
from router.access.keys import StoredKey, digest_of, key_id_of
from standard.domain.errors import DatabaseUnavailable, Overloaded, Unauthenticated

NOW = dt.datetime.now(dt.UTC)


def made(number: int = 1) -> tuple[str, StoredKey]:
    token = f"pm_{number:012x}_{'s' * 43}"
    key_id = key_id_of(token)
    assert key_id is not None
    return token, StoredKey(key_id, "acme", digest_of(token), "user", None, frozenset(), "", NOW, None, None)


class Keys:
    """A database of keys, and a clock."""

    def __init__(self, *keys: StoredKey) -> None:
        self.keys = {key.key_id: key for key in keys}
        self.now = 0.0
        self.asked = 0
        self.away = False
        self.pause = 0.0
        self.at_once = self.most_at_once = 0

    async def find(self, key_id: str) -> StoredKey | None:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.pause)
        finally:
            self.at_once -= 1
        if self.away:
            raise DatabaseUnavailable("the database is away")
        return self.keys.get(key_id)

    def ring(self) -> KeyRing:
        return KeyRing(self.find, clock=lambda: self.now)


async def test_a_key_is_read_once_while_it_is_fresh() -> None:
    token, key = made()
    keys = Keys(key)
    ring = keys.ring()
    for _ in range(5):
        assert (await ring.identify(token)).tenant == "acme"
    assert keys.asked == 1


async def test_a_revoked_key_is_known_as_soon_as_it_is_not_fresh_any_more() -> None:
    token, key = made()
    keys = Keys(key)
    ring = keys.ring()
    await ring.identify(token)
    keys.keys[key.key_id] = replace(key, revoked_at=NOW)
    keys.now = FRESH_SECONDS
    with pytest.raises(Unauthenticated, match="revoked"):
        await ring.identify(token)


async def test_a_deleted_key_is_forgotten() -> None:
    token, key = made()
    keys = Keys(key)
    ring = keys.ring()
    await ring.identify(token)
    keys.keys.clear()
    keys.now = FRESH_SECONDS
    with pytest.raises(Unauthenticated, match="not valid"):
        await ring.identify(token)


async def test_known_keys_outlive_a_short_absence_of_the_database_and_no_long_one() -> None:
    token, key = made()
    keys = Keys(key)
    ring = keys.ring()
    await ring.identify(token)
    keys.away = True
    keys.now = STALE_SECONDS - 0.1
    assert (await ring.identify(token)).tenant == "acme"
    keys.now = STALE_SECONDS
    with pytest.raises(DatabaseUnavailable):
        await ring.identify(token)
    with pytest.raises(DatabaseUnavailable):
        await ring.identify(made(2)[0])


async def test_a_wrong_secret_of_a_known_key_is_not_valid() -> None:
    token, key = made()
    ring = Keys(key).ring()
    with pytest.raises(Unauthenticated, match="not valid"):
        await ring.identify(token[:-1] + "x")


async def test_invented_keys_are_looked_up_a_few_at_a_time_and_known_ones_do_not_wait() -> None:
    token, key = made()
    keys = Keys(key)
    ring = keys.ring()
    await ring.identify(token)
    keys.pause = 0.2
    flood = [asyncio.create_task(ring.identify(made(number)[0])) for number in range(2, 400)]
    await asyncio.sleep(0.05)
    keys.now = FRESH_SECONDS
    keys.pause = 0.0
    async with asyncio.timeout(0.1):
        assert (await ring.identify(token)).tenant == "acme"
        refused = await asyncio.gather(ring.identify(made(999)[0]), return_exceptions=True)
        assert isinstance(refused[0], Overloaded)
    for task in flood:
        task.cancel()
    ended = await asyncio.gather(*flood, return_exceptions=True)
    assert sum(isinstance(error, Overloaded) for error in ended) == 398 - 256
    assert keys.most_at_once <= 2 + 1
    assert len(ring._known) == 1


async def test_an_invented_key_never_reaches_the_database_without_the_form_of_one() -> None:
    keys = Keys()
    ring = keys.ring()
    for token in ("", "pm_", "sk-abc", "pm_00000000000g_" + "s" * 43, "pm_000000000001_" + "s" * 42, "x" * 100_000):
        with pytest.raises(Unauthenticated):
            await ring.identify(token)
    assert keys.asked == 0
