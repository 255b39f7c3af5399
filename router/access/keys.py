"""API keys: made, listed and revoked in the database. A key is shown once; what is kept cannot be turned back into it.

A key is `pm_<id>_<secret>`: 12 hexadecimal digits that name it, and 256 random bits in 43 characters of base64url. The
database holds the SHA-256 of the whole. A slow hash (scrypt and its kin) protects secrets that people choose from being
guessed; 256 random bits cannot be guessed at any speed, and every call pays for the hash.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from router.access.identity import Identity
from standard.database.pool import connection
from standard.domain.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.database.pool import Pool

ROLES: Final = ("user", "admin", "operator")
_TOKEN: Final = re.compile(r"pm_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_NAME: Final = re.compile(r"[\x21-\x7e]{1,128}")
_LONGEST: Final = dt.timedelta(days=3650)
_MOST_NAMES: Final = 256


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What is kept of a key. `collections` None = all of the tenant; `expires_at` None = never."""

    key_id: str
    tenant: str
    digest: bytes
    role: str
    collections: frozenset[str] | None
    groups: frozenset[str]
    note: str
    created_at: dt.datetime
    expires_at: dt.datetime | None
    revoked_at: dt.datetime | None

    def opens_for(self, token: str) -> bool:
        """Whether the token is this key; takes the same time whichever it is."""
        return hmac.compare_digest(digest_of(token), self.digest)

    def state(self, now: dt.datetime) -> str:
        """`active`, `revoked` or `expired`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"

    def identity(self) -> Identity:
        """Whom the key stands for."""
        roles = {"operator", "admin"} if self.role == "operator" else {self.role}
        return Identity(self.tenant, frozenset(roles), self.groups, self.collections, f"key {self.key_id}")


def key_id_of(token: str) -> str | None:
    """The id within a token; None for what is no token of ours."""
    found = _TOKEN.fullmatch(token)
    return found[1] if found else None


def digest_of(token: str) -> bytes:
    """SHA-256 of a token, 32 bytes."""
    return hashlib.sha256(token.encode()).digest()


async def create_key(
    pool: Pool,
    tenant: str,
    *,
    role: str = "user",
    collections: Sequence[str] = (),
    groups: Sequence[str] = (),
    expires_in: dt.timedelta | None = None,
    note: str = "",
) -> tuple[str, StoredKey]:
    """Make a key and return it with what is kept of it; nobody can tell it again. No `collections` = all.

    Raises InvalidInput, naming the option.
    """
    if not _NAME.fullmatch(tenant):
        raise InvalidInput("tenant", "must be 1 to 128 printable ASCII characters without blanks")
    if role not in ROLES:
        raise InvalidInput("role", f"{role[:40]!r} is no role; use {', '.join(ROLES)}")
    if collections and role != "user":
        raise InvalidInput("collections", f"the role {role} sees every collection of its tenant; leave them away")
    for field, names in (("collections", collections), ("groups", groups)):
        if len(names) > _MOST_NAMES or not all(_NAME.fullmatch(name) for name in names):
            raise InvalidInput(field, f"must be at most {_MOST_NAMES} names of printable ASCII without blanks")
    if expires_in is not None and not dt.timedelta(0) < expires_in <= _LONGEST:
        raise InvalidInput("expires", f"must be above 0 and at most {_LONGEST.days} days")
    if len(note) > 512 or "\x00" in note:
        raise InvalidInput("note", "must have at most 512 characters and no NUL")
    key_id = secrets.token_hex(6)
    token = f"pm_{key_id}_{secrets.token_urlsafe(32)}"
    async with connection(pool) as conn:
        await conn.execute(
            "insert into api_key (key_id, tenant, digest, role, collections, groups, note, expires_at)"
            " values (%s, %s, %s, %s, %s, %s, %s, now() + %s)",
            (
                key_id,
                tenant,
                digest_of(token),
                role,
                sorted(set(collections)) or None,
                sorted(set(groups)),
                note,
                expires_in,
            ),
        )
    stored = await find_key(pool, key_id)
    if stored is None:
        raise NotFound(f"key {key_id} was deleted at this moment")
    return token, stored


async def find_key(pool: Pool, key_id: str) -> StoredKey | None:
    """A key by its id, also a revoked or expired one."""
    async with connection(pool) as conn:
        cursor = await conn.execute(f"{_SELECT} where key_id = %s".encode(), (key_id,))
        row = await cursor.fetchone()
    return None if row is None else _read(row)


async def list_keys(pool: Pool, tenant: str = "") -> list[StoredKey]:
    """All keys, or those of a tenant, by tenant and age."""
    async with connection(pool) as conn:
        statement = f"{_SELECT} where %s in ('', tenant) order by tenant, created_at, key_id"
        cursor = await conn.execute(statement.encode(), (tenant,))
        return [_read(row) for row in await cursor.fetchall()]


async def revoke_key(pool: Pool, key_id: str) -> StoredKey:
    """Revoke a key; one that is revoked already stays so. Raises NotFound."""
    async with connection(pool) as conn:
        await conn.execute("update api_key set revoked_at = coalesce(revoked_at, now()) where key_id = %s", (key_id,))
    stored = await find_key(pool, key_id)
    if stored is None:
        raise NotFound(f"there is no key {key_id[:64]!r}; `pointsman keys list` shows them")
    return stored


_SELECT: Final = (
    "select key_id, tenant, digest, role, collections, groups, note, created_at, expires_at, revoked_at from api_key"
)


def _read(row: tuple[Any, ...]) -> StoredKey:
    key_id, tenant, digest, role, collections, groups, *rest = row
    seen = None if collections is None else frozenset(collections)
    return StoredKey(key_id, tenant, bytes(digest), role, seen, frozenset(groups), *rest)
