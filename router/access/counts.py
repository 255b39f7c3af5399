"""Prevents: calls that hang, or limits that fall away, because the Redis that replicas count in is gone.

Counts live in memory, each process its own, or in Redis, where all replicas share them. Beside Redis each process keeps
what it counted itself: while Redis does not answer within STORE_SECONDS, that decides. Then Redis is left alone and one
question is tried on it every AGAIN_SECONDS, or by whoever asks for its health; the first answer makes it count again.
What was charged meanwhile is brought to it before it is asked again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
from limits import RateLimitItemPerDay, RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter, SlidingWindowCounterRateLimiter
from limits.errors import ConfigurationError, StorageError

from router.settings import BadSettings
from standard.domain.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from limits import RateLimitItem

STORE_SECONDS: Final = 0.5
"""Longest wait for Redis; what takes longer counts as away."""
AGAIN_SECONDS: Final = 2.0
_CONNECTIONS: Final = 32
_KEY: Final = "limits.redis_url (POINTSMAN_LIMITS__REDIS_URL)"
_log = structlog.get_logger("pointsman.limits")
_Said = TypeVar("_Said")


class _Store:
    """Counts of one place: calls by a sliding minute, everything else by a fixed day from the first charge on."""

    def __init__(self, storage: MemoryStorage | RedisStorage) -> None:
        self._storage = storage
        self._per_minute = SlidingWindowCounterRateLimiter(storage)
        self._per_day = FixedWindowRateLimiter(storage)

    async def window(self, item: RateLimitItemPerMinute, *names: str) -> tuple[int, float, int, float]:
        """Count of the window before and its seconds left, count of this one and its seconds left and a window more."""
        return await self._storage.get_sliding_window(item.key_for(*names), item.get_expiry())

    def by(self, item: RateLimitItem) -> SlidingWindowCounterRateLimiter | FixedWindowRateLimiter:
        """What counts such an item."""
        return self._per_minute if isinstance(item, RateLimitItemPerMinute) else self._per_day


def seconds_until(
    most: int, length: float, before: int, before_left: float, current: int, current_left: float
) -> float:
    """Seconds until a sliding window counts at most `most` >= 0, where nothing more is counted.

    `before` weighs by the share of its `length` that is left; `current` does so once its own is over, which is
    `current_left` less one length from now. Counts are rounded down, so that one is gone as soon as it begins to go.
    """
    if int(before * before_left / length) + current <= most:
        return 0.0
    if current <= most:
        return before_left - length * (most - current + 1) / before
    return current_left - length + max(0.0, length - length * (most + 1) / current)


@dataclass(slots=True)
class _Owed:
    """What was charged while the shared store was away, and until when it counts."""

    amount: int
    until: float


class Counts:
    """Counts by names, in this process and, with a `redis_url`, shared by all that have the same.

    Raises BadSettings for a URL that is none of Redis', or without the package redis.
    """

    def __init__(self, redis_url: str = "") -> None:
        self._own = _Store(MemoryStorage())
        self._pool: Any = None
        self._shared: _Store | None = None
        self._owed: dict[tuple[str, ...], _Owed] = {}
        self._away = False
        self._again_at = 0.0
        if redis_url:
            self._pool, storage = _redis(redis_url)
            self._shared = _Store(storage)

    @property
    def are_shared(self) -> bool:
        """Whether there is a store that others count in as well."""
        return self._shared is not None

    async def take(self, item: RateLimitItem, *names: str, amount: int = 1) -> bool:
        """Count `amount` >= 1; False, and nothing is counted, where there is not so much."""
        allowed = await self._shared_says(lambda store: store.by(item).hit(item, *names, cost=amount))
        if allowed is False:
            return False
        here = await self._own.by(item).hit(item, *names, cost=amount)
        return here if allowed is None else allowed

    async def charge(self, item: RateLimitItem, amount: int, *names: str) -> None:
        """Count `amount` >= 1, also beyond what there is.

        A charge that Redis did not confirm in time is brought again and may count twice: rather that than not at all.
        """
        await self._own.by(item).hit(item, *names, cost=amount)
        if self._shared is not None:
            await self._bring(item, amount, *names)

    async def has_some(self, item: RateLimitItem, *names: str) -> bool:
        """Whether there is some left."""
        if names in self._owed:
            await self._bring(item, 0, *names)
        left = await self._shared_says(lambda store: store.by(item).test(item, *names))
        return await self._own.by(item).test(item, *names) if left is None else left

    async def resets_at(self, item: RateLimitItem, *names: str) -> float:
        """When a day's count is over, in seconds of time.time()."""
        stats = await self._shared_says(lambda store: store.by(item).get_window_stats(item, *names))
        return (stats or await self._own.by(item).get_window_stats(item, *names)).reset_time

    async def has_in(self, item: RateLimitItemPerMinute, amount: int, *names: str) -> float:
        """Seconds until a sliding minute has `amount` left, if nobody else takes of it."""
        window = await self._shared_says(lambda store: store.window(item, *names))
        return seconds_until(item.amount - amount, item.get_expiry(), *(window or await self._own.window(item, *names)))

    async def _bring(self, item: RateLimitItem, amount: int, *names: str) -> None:
        """Charge the shared store, with what is owed to it; what it does not take, or may not have taken, is owed."""
        owed, now = self._owed.pop(names, None), time.monotonic()
        until = now + item.get_expiry()
        if owed is not None and owed.until > now:
            amount, until = amount + owed.amount, owed.until
        if not amount:
            return
        taken = False
        try:
            taken = await self._shared_says(lambda store: store.by(item).hit(item, *names, cost=amount)) is not None
        finally:  # a caller who leaves takes with it no debt of others
            if not taken:
                self._owed.setdefault(names, _Owed(0, until)).amount += amount

    async def _shared_says(self, ask: Callable[[_Store], Awaitable[_Said]], *, always: bool = False) -> _Said | None:
        """The shared store's answer; None where there is no such store, or it is away."""
        store, now = self._shared, time.monotonic()
        if store is None or (self._away and now < self._again_at and not always):
            return None
        self._again_at = now + AGAIN_SECONDS  # others go on without it while this one tries
        try:
            async with asyncio.timeout(STORE_SECONDS):
                said = await ask(store)
        except (StorageError, TimeoutError) as error:
            self._again_at = time.monotonic() + AGAIN_SECONDS
            if not self._away:
                self._away = True
                problem = error.storage_error if isinstance(error, StorageError) else error
                _log.warning("redis is away: limits hold by what each process counts itself", error=repr(problem))
            return None
        if self._away:
            self._away = False
            _log.info("redis is back: limits are shared again")
        return said

    async def probe(self) -> None:
        """Ask the shared store for a sign of life; Unavailable where there is none."""
        if self._shared is None:
            return
        item = RateLimitItemPerDay(1)
        if await self._shared_says(lambda store: store.by(item).test(item, "probe"), always=True) is None:
            raise Unavailable(f"redis does not answer within {STORE_SECONDS:g} s; limits are each process's own")

    async def close(self) -> None:
        """Let go of the shared store."""
        if self._pool is not None:
            await self._pool.aclose()


def _redis(url: str) -> tuple[Any, RedisStorage]:
    """A bounded pool of connections, and what counts through it. Nothing is connected yet."""
    if not url.startswith(("redis://", "rediss://")):
        raise BadSettings([f"{_KEY}: must begin with redis:// or rediss://"])
    try:
        from redis.asyncio import BlockingConnectionPool
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        pool: Any = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=STORE_SECONDS,
            socket_timeout=STORE_SECONDS,
            socket_connect_timeout=STORE_SECONDS,
            retry=Retry(NoBackoff(), 0),  # its own would hold a call for seconds
        )
        storage = RedisStorage(
            f"async+{url}", wrap_exceptions=True, implementation="redispy", key_prefix="pointsman", connection_pool=pool
        )
    except (ImportError, ConfigurationError):
        raise BadSettings([f"{_KEY}: needs the package redis; install pointsman[redis]"]) from None
    except ValueError as error:
        raise BadSettings([f"{_KEY}: {error}"]) from None
    return pool, storage
