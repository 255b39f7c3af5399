"""Prevents: a web page that reads the console, or saves in it, through the browser of somebody who may.

Loopback without keys knows no password: whoever can send a request is an admin. A page under a name of its own that it
lets point to 127.0.0.1 (DNS rebinding) is "the same origin" to the browser and sends no Origin when it reads; what it
cannot choose is the Host header. And what writes must be a request that no form and no other origin can send without
being asked first: JSON, said to be JSON, with a header of our own.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from router.http.errors import UnsupportedType
from router.http.wire import JSON
from standard.domain.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.settings import HttpSettings

WRITE_HEADER: Final = "x-pointsman-console"
"""A write must bring it, with any value; browsers ask (preflight) before a page of another origin may send it."""


def refuse_other_names(headers: Mapping[str, str], settings: HttpSettings) -> None:
    """Raise PermissionDenied where a loopback server is called by a name that is neither loopback's nor allowed.

    Allowed are the hosts of http.origins, which is where a proxy on the same machine gets its name in.
    """
    if not _is_loopback(settings.host):
        return
    name = _host_of("//" + headers.get("host", ""))
    if name and (_is_loopback(name) or name in {_host_of(origin) for origin in settings.origins}):
        return
    message = f"the console does not answer to the host {name[:120]!r}; use 127.0.0.1 or localhost"
    raise PermissionDenied(f"{message}, or allow https://{name[:120] or 'HOST'} with http.origins")


def require_write(headers: Mapping[str, str]) -> None:
    """Raise UnsupportedType or PermissionDenied for a write that a page of another site could have sent unasked."""
    content_type = headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if content_type != JSON:
        raise UnsupportedType("content-type", f"{content_type[:80]!r} is not taken here; send {JSON}")
    if not headers.get(WRITE_HEADER):
        raise PermissionDenied(f"a write needs the header {WRITE_HEADER}: 1")


def _host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower().rstrip(".")
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
