"""Prevents: one tenant taking the gateway, or the bill, for itself.

Four limits a tenant: calls a minute (sliding window), calls at once, billed tokens a day and US dollars a day. A day
begins with the first answer that is charged and ends 24 hours later. Tokens and money are known only after an answer,
so the answer that crosses a limit is still given and the next question is refused; they are counted call by call of the
language model, so a run that fails or is cancelled is charged for what it used.

Counts live in memory, each process its own, or in Redis, where all replicas share them (router.access.counts says what
holds while it is away); calls at once are each process's own in any case.
"""

from __future__ import annotations

import math
import time
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

from limits import RateLimitItemPerDay, RateLimitItemPerMinute

from router.access.counts import Counts
from standard.domain.answer import Usage
from standard.domain.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from limits import RateLimitItem

    from router.settings import LimitSettings, TenantLimitSettings
    from router.telemetry.metrics import Metrics

_MICRO: Final = 1_000_000
"""Money is counted in millionths of a dollar."""
_CONCURRENT_RETRY_SECONDS: Final = 1.0


@dataclass(slots=True)
class Spent:
    """What one run used so far, by calls of the language model."""

    usage: Usage = field(default_factory=Usage)


spent_now: ContextVar[Spent | None] = ContextVar("spent_now", default=None)
"""The run on whose account the current task works."""


class TenantLimits:
    """Counts and refuses. Limits that are not set cost nothing."""

    def __init__(self, settings: LimitSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self.counts = Counts(settings.redis_url.get_secret_value() if settings.redis_url else "")
        self._at_once: dict[str, int] = {}

    def of(self, tenant: str) -> TenantLimitSettings:
        """The limits of a tenant: its own where it has them, else the defaults."""
        return self._settings.of(tenant)

    @asynccontextmanager
    async def call(self, tenant: str, *, stands_for: int = 1) -> AsyncIterator[None]:
        """Count a call for the duration of the block; Overloaded beyond the calls a minute or at once.

        With `stands_for` = 0 it counts only as one at once; what it is a minute, `take` counts.
        """
        limits = self.of(tenant)
        if limits.concurrent is None and limits.requests_per_minute is None:
            yield
            return
        running = self._at_once.get(tenant, 0)
        if limits.concurrent is not None and running >= limits.concurrent:
            self._metrics.shed.labels("tenant_concurrent").inc()
            message = f"tenant {tenant} has {running} calls in flight, its most; try again when one has ended"
            raise Overloaded(message, retry_after_seconds=_CONCURRENT_RETRY_SECONDS)
        self._at_once[tenant] = running + 1
        try:
            if stands_for:
                await self.take(tenant, stands_for)
            yield
        finally:
            left = self._at_once[tenant] - 1
            if left:
                self._at_once[tenant] = left
            else:
                del self._at_once[tenant]

    async def take(self, tenant: str, calls: int) -> None:
        """Count calls of this minute, all or none of them; Overloaded where there are not so many left.

        `calls` is from 1 to the tenant's calls a minute: more are never left.
        """
        allowed = self.of(tenant).requests_per_minute
        if allowed is None:
            return
        item = RateLimitItemPerMinute(allowed)
        if not await self.counts.take(item, "calls", tenant, amount=calls):
            less = "used up its" if calls == 1 else f"less than {calls} left of its"
            seconds = await self.counts.has_in(item, calls, "calls", tenant)
            self._refuse("tenant_requests", f"tenant {tenant} has {less} {allowed} calls a minute", seconds)

    async def check_spending(self, tenant: str) -> None:
        """Raise Overloaded where the tenant's tokens or money of the day are used up."""
        for kind, reason, item in self._spending(tenant):
            if not await self.counts.has_some(item, kind, tenant):
                seconds = await self.counts.resets_at(item, kind, tenant) - time.time()
                self._refuse(reason, f"tenant {tenant} has used up its {kind} of the day", seconds)

    async def charge(self, tenant: str, usage: Usage) -> None:
        """Count what a run used."""
        amounts = {"tokens": usage.billed_tokens, "money": math.ceil(usage.cost_usd * _MICRO)}
        for kind, _, item in self._spending(tenant):
            if amounts[kind]:
                await self.counts.charge(item, amounts[kind], kind, tenant)

    def _spending(self, tenant: str) -> list[tuple[str, str, RateLimitItem]]:
        limits = self.of(tenant)
        found: list[tuple[str, str, RateLimitItem]] = []
        if limits.tokens_per_day is not None:
            found.append(("tokens", "tenant_tokens", RateLimitItemPerDay(limits.tokens_per_day)))
        if limits.usd_per_day is not None:
            found.append(("money", "tenant_money", RateLimitItemPerDay(math.ceil(limits.usd_per_day * _MICRO))))
        return found

    def _refuse(self, reason: str, message: str, seconds: float) -> NoReturn:
        seconds = max(0.1, seconds)
        self._metrics.shed.labels(reason).inc()
        raise Overloaded(f"{message}; try again in {seconds:.0f} s", retry_after_seconds=seconds)

    async def close(self) -> None:
        """Let go of the counts."""
        await self.counts.close()
