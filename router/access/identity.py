"""Who calls: tenant, roles, access groups and collections. What a search may see comes from here, never from a model.

Roles: `user` asks, searches and reads; `admin` also writes to the corpus and to its tenant's policy, and reads traces;
`operator` is an admin who changes the policy of other tenants and of all.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from router.settings import BadSettings
from standard.domain.errors import NotFound, PermissionDenied


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller. `collections` None = all of the tenant; `name` is what the audit calls them, "" for nobody known."""

    tenant: str = "default"
    roles: frozenset[str] = frozenset({"operator", "admin"})
    groups: frozenset[str] = frozenset()
    collections: frozenset[str] | None = None
    name: str = ""

    def sees(self, collection: str) -> bool:
        """Whether this caller may know of a collection."""
        return self.collections is None or collection in self.collections

    def admitted(self, collection: str) -> str:
        """Return the collection's name; NotFound, as for one that does not exist, where this caller may not see it."""
        if not self.sees(collection):
            raise NotFound(f"there is no collection {collection!r}")
        return collection

    def require(self, role: str) -> None:
        """Raise PermissionDenied without the role."""
        if role not in self.roles:
            raise PermissionDenied(f"this needs the role {role}")

    def require_over(self, tenant: str) -> None:
        """Raise PermissionDenied where this caller may not change what holds for `tenant` ("" = for all)."""
        if tenant != self.tenant and "operator" not in self.roles:
            raise PermissionDenied(f"what holds for {tenant or 'all tenants'} needs the role operator")


def require_loopback(host: str, key: str = "server.host (POINTSMAN_SERVER__HOST)", *, keys: bool = False) -> None:
    """Raise BadSettings, naming the key, for an address that others can reach while nobody is authenticated.

    `keys` says whether callers need an API key; then any address will do.
    """
    if keys or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise BadSettings(
            [
                (
                    f"{key}: {host!r} can be reached from outside and no authentication"
                    ' is configured; set auth.mode = "keys" (POINTSMAN_AUTH__MODE), or use 127.0.0.1, ::1 or localhost'
                    " and put an authenticating proxy in front"
                )
            ]
        )
