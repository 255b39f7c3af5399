"""The conditions under which figures are measured: those of a gateway that others may call.

API keys are asked for, every limit of a tenant is set (and far away), metrics are kept, and traces go to a collector.
"""

from __future__ import annotations

import datetime as dt
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from router.access.auth import Gate, KeyRing
from router.access.keys import StoredKey, create_key, digest_of, key_id_of, revoke_key
from router.access.limits import TenantLimits
from router.bench.callers import Caller
from router.bench.standin import MODEL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from router.bench.standin import Standin
    from router.settings import Settings
    from router.telemetry.metrics import Metrics
    from standard.database.pool import Pool

_FAR_AWAY: Final = {
    "requests_per_minute": 10_000_000,
    "concurrent": 100_000,
    "tokens_per_day": 1_000_000_000_000,
    "usd_per_day": 1_000_000.0,
}
_KEY_LASTS: Final = dt.timedelta(hours=12)
_TOKEN: Final = f"pm_{'0' * 12}_{'A' * 43}"
"""A key for gateways without a database; it opens nothing else."""


def guarded(settings: Settings, standin: Standin, *, model: bool = False, traced: float | None = None) -> Settings:
    """The settings with keys, limits and traces on; with `model` the stand-in answers, else no model does.

    `traced` is the share of calls that are recorded; None = as the settings say.
    """
    traces = {"endpoint": f"http://127.0.0.1:{standin.port}", **({} if traced is None else {"ratio": traced})}
    llm = {"base_url": standin.url, "model": MODEL} if model else {"base_url": ""}
    changes: Mapping[str, Mapping[str, object]] = {
        "auth": {"mode": "keys"},
        "limits": _FAR_AWAY,
        "traces": traces,
        "llm": llm,
    }
    return settings.model_copy(
        update={section: getattr(settings, section).model_copy(update=values) for section, values in changes.items()}
    )


@asynccontextmanager
async def open_caller(pool: Pool) -> AsyncIterator[Caller]:
    """Yield somebody whose key is in the database for as long as the block lasts."""
    token, stored = await create_key(pool, "default", role="operator", expires_in=_KEY_LASTS, note="pointsman bench")
    try:
        yield Caller(token)
    finally:
        await revoke_key(pool, stored.key_id)


def gate_without_database(settings: Settings, metrics: Metrics) -> tuple[Gate, Caller]:
    """A gate as `guarded` settings ask for it, with one key that is known already, and who has it."""
    key = StoredKey(
        key_id=str(key_id_of(_TOKEN)),
        tenant="default",
        digest=digest_of(_TOKEN),
        role="operator",
        collections=None,
        groups=frozenset(),
        note="pointsman bench",
        created_at=dt.datetime.now(dt.UTC),
        expires_at=None,
        revoked_at=None,
    )

    async def find(key_id: str) -> StoredKey | None:
        return key if key_id == key.key_id else None

    return Gate(KeyRing(find), TenantLimits(settings.limits, metrics)), Caller(_TOKEN)
