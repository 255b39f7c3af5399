"""Who calls: tenant, roles and access groups. What a search may see comes from here, never from a model."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from router.settings import BadSettings


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller."""

    tenant: str = "default"
    roles: frozenset[str] = frozenset({"admin"})
    groups: frozenset[str] = frozenset()


def require_loopback(host: str, key: str = "server.host (POINTSMAN_SERVER__HOST)") -> None:
    """Raise BadSettings, naming the key, for an address that others can reach while nobody is authenticated."""
    if host == "localhost":
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
                    " is configured; use 127.0.0.1, ::1 or localhost and put an authenticating proxy in front"
                )
            ]
        )
