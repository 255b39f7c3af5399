"""Prevents: a call by somebody who may not, and a key that still works after it was revoked.

`KeyRing` knows keys for two seconds, so that a call costs a hash and a look-up in memory, and every replica learns of a
revoked key within that time. While the database is away keys that were known go on for a minute; then nobody is let in.
Unknown keys are never kept, and only a few are looked up at once: a flood of invented ones fills neither memory nor the
pool, and keys that are known do not wait behind it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import time
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from router.access.certified import caller_named
from router.access.identity import Identity
from router.access.keys import key_id_of
from standard.domain.errors import DatabaseUnavailable, Overloaded, PointsmanError, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from router.access.keys import StoredKey
    from router.access.limits import TenantLimits

FRESH_SECONDS: Final = 2.0
STALE_SECONDS: Final = 60.0
_KEPT: Final = 10_000
_LOOKUPS_AT_ONCE: Final = 2
_WAITING: Final = 256
_LOOKUP_SECONDS: Final = 3.0
_BEARER: Final = re.compile(r"bearer[ \t]+([!-~]+)[ \t]*", re.IGNORECASE)
_log = structlog.get_logger("pointsman.auth")


def presented_key(authorization: Iterable[str], x_api_key: Iterable[str]) -> str | None:
    """The one key of a call's `authorization: Bearer …` and `x-api-key` values; None where it brings none.

    Raises Unauthenticated for two different keys, and for an authorization that is not a bearer's where there is no
    x-api-key beside it.
    """
    given = [value.strip() for value in x_api_key if value.strip()]
    foreign = False
    for value in authorization:
        found = _BEARER.fullmatch(value.strip())
        if found:
            given.append(found[1])
        elif value.strip():
            foreign = True
    if foreign and not given:
        raise Unauthenticated("authorization must be `Bearer KEY`; or send the key as x-api-key")
    if len(set(given)) > 1:
        raise Unauthenticated("the call brings two different keys; send one")
    return given[0] if given else None


@dataclass(slots=True)
class _Known:
    """A key as it was read, and when (monotonic seconds)."""

    key: StoredKey
    read_at: float


class KeyRing:
    """Turns keys into identities. `find` reads a key by its id; `local` is a key that this process made for itself."""

    def __init__(
        self,
        find: Callable[[str], Awaitable[StoredKey | None]],
        *,
        local: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._local = local
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._rereading = asyncio.Semaphore(_LOOKUPS_AT_ONCE)
        self._looking_up = asyncio.Semaphore(_LOOKUPS_AT_ONCE)
        self._waiting = 0

    async def identify(self, token: str | None) -> Identity:
        """Whom a key stands for. Raises Unauthenticated, DatabaseUnavailable, or Overloaded under a flood of keys."""
        if token is None:
            raise Unauthenticated("an API key is needed; send it as `authorization: Bearer KEY` or x-api-key")
        if self._local and token == self._local:
            return Identity()
        key_id = key_id_of(token)
        key = None if key_id is None else await self._key(key_id)
        if key is None or not key.opens_for(token):
            raise Unauthenticated("the API key is not valid")
        state = key.state(dt.datetime.now(dt.UTC))
        if state != "active":
            raise Unauthenticated(f"the API key {key.key_id} is {state}")
        return key.identity()

    async def _key(self, key_id: str) -> StoredKey | None:
        known = self._fresh(key_id)
        if known is not None:
            return known
        if key_id in self._known:
            return await self._looked_up(key_id, self._rereading)
        if self._waiting >= _WAITING:
            raise Overloaded("too many keys are being looked up; try again shortly", retry_after_seconds=1.0)
        self._waiting += 1
        try:
            return await self._looked_up(key_id, self._looking_up)
        finally:
            self._waiting -= 1

    async def _looked_up(self, key_id: str, places: asyncio.Semaphore) -> StoredKey | None:
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS), places:
                # Another call of the same key may have read it while this one waited.
                return self._fresh(key_id) or await self._read(key_id)
        except TimeoutError:
            return self._stale(key_id, DatabaseUnavailable("the API key could not be looked up in time"))
        except PointsmanError as error:
            return self._stale(key_id, error)

    def _fresh(self, key_id: str) -> StoredKey | None:
        known = self._known.get(key_id)
        if known is None or self._clock() - known.read_at >= FRESH_SECONDS:
            return None
        self._known.move_to_end(key_id)
        return known.key

    async def _read(self, key_id: str) -> StoredKey | None:
        at = self._clock()
        key = await self._find(key_id)
        if key is None:
            self._known.pop(key_id, None)
            return None
        self._known[key_id] = _Known(key, at)
        self._known.move_to_end(key_id)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return key

    def _stale(self, key_id: str, error: PointsmanError) -> StoredKey:
        known = self._known.get(key_id)
        if known is None or self._clock() - known.read_at >= STALE_SECONDS:
            raise error
        _log.warning("a key could not be read again; what was known of it holds", key=key_id, error=error.message)
        return known.key


class Gate:
    """What every call passes first: who it is by, and whether their tenant may have another one now."""

    def __init__(
        self, keys: KeyRing | None, limits: TenantLimits, certified: Mapping[str, Identity] | None = None
    ) -> None:
        self._keys = keys
        self._limits = limits
        self._certified = certified or {}

    @property
    def asks_for_keys(self) -> bool:
        """Whether nobody passes without a key."""
        return self._keys is not None

    @property
    def reads_certificates(self) -> bool:
        """Whether a client's certificate may say who it is."""
        return bool(self._certified)

    @asynccontextmanager
    async def admitted(
        self,
        authorization: Iterable[str],
        x_api_key: Iterable[str],
        certificate: Iterable[str] = (),
        *,
        stands_for: int = 1,
    ) -> AsyncIterator[Identity]:
        """Yield the caller for the duration of their call. Without keys everybody is tenant `default`, an operator.

        `certificate` holds the names of a verified client certificate; a key that comes with the call wins over it.
        `stands_for` is the number of requests that it counts as; 0 where `stands_for` is called once they are known.
        """
        identity = await self._identify(authorization, x_api_key, certificate)
        async with self._limits.call(identity.tenant, stands_for=stands_for):
            yield identity

    def most(self, tenant: str) -> int | None:
        """The most requests that a call may stand for: those of a minute; None where they are not limited."""
        return self._limits.of(tenant).requests_per_minute

    async def stands_for(self, tenant: str, requests: int) -> None:
        """Count a call that was admitted as none as the number of requests (from 1 to `most`) that it stands for.

        All or none is counted. Raises Overloaded.
        """
        await self._limits.take(tenant, requests)

    async def _identify(
        self, authorization: Iterable[str], x_api_key: Iterable[str], certificate: Iterable[str]
    ) -> Identity:
        if self._keys is None:
            return Identity()
        key = presented_key(authorization, x_api_key)
        named = caller_named(certificate, self._certified) if key is None else None
        return named or await self._keys.identify(key)
