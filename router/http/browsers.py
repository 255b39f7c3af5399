"""Prevents: any web page that somebody opens on this machine asking the gateway in their name.

A server on loopback is reached by the pages of every site in the browser. Browsers say where a request comes from;
programs say nothing and are let through. A page under a name of its own that it lets point to 127.0.0.1 (DNS
rebinding) is "the same origin" to the browser and sends no Origin when it reads; what it cannot choose is the Host
header. Nor does a frame or a link say an Origin, and one that leads to a path which asks would be paid for.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from standard.domain.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router.settings import HttpSettings

ANY_HOST: Final = "*"


def refuse_other_names(headers: Mapping[str, str], settings: HttpSettings) -> None:
    """Raise PermissionDenied where the server is called by a name that is neither loopback's nor allowed.

    For a server that asks for no keys. Allowed are http.hosts and the hosts of http.origins. Without a Host header it
    is no browser that calls.
    """
    given = headers.get("host")
    if given is None or ANY_HOST in settings.hosts:
        return
    name = host_of("//" + given)
    allowed = (*(f"//{host}" for host in settings.hosts), *settings.origins)
    if name and (is_loopback(name) or name in map(host_of, allowed)):
        return
    message = f"the gateway does not answer to the host {name[:120]!r}; use 127.0.0.1 or localhost, or allow it:"
    raise PermissionDenied(f"{message} its name with http.hosts, its pages with http.origins")


def refuse_other_sites(headers: Mapping[str, str], origins: Sequence[str], *, links: bool) -> None:
    """Raise PermissionDenied for a request of a page whose origin is neither of loopback nor among `origins`.

    `links`: whether links and frames of other sites may lead here; not to what asks.
    """
    origin = headers.get("origin")
    if origin is None:
        # Images, scripts, frames and links bring no origin.
        navigates = headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") == "cross-site" and not (links and navigates):
            raise PermissionDenied("pages of other sites may not call; allow their origin with http.origins")
        return
    if origin not in origins and not is_loopback(host_of(origin)):
        raise PermissionDenied(f"pages of {origin[:120]} may not call; allow it with http.origins")


def host_of(url: str) -> str:
    """The host of a URL in lower case, "" where there is none."""
    try:
        return (urlsplit(url).hostname or "").lower().rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: localhost, names below it, loopback addresses."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
