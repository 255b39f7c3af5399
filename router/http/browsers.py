"""Prevents: any web page that somebody opens on this machine asking the gateway in their name.

A server on loopback is reached by the pages of every site in the browser, also under a name of their own (DNS
rebinding). Browsers say where a request comes from; programs say nothing and are let through.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from standard.domain.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def refuse_other_sites(headers: Mapping[str, str], origins: Sequence[str]) -> None:
    """Raise PermissionDenied for a request of a page whose origin is neither of loopback nor among `origins`."""
    origin = headers.get("origin")
    if origin is None:
        # Images, scripts and the like bring no origin. Following a link is no request of the page it stands on.
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            raise PermissionDenied("pages of other sites may not call; allow their origin with http.origins")
        return
    if origin not in origins and not _of_loopback(origin):
        raise PermissionDenied(f"pages of {origin[:120]} may not call; allow it with http.origins")


def _of_loopback(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or host.endswith(".localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
