"""Prevents: a web page that saves in the console through the browser of somebody who may.

Loopback without keys knows no password: whoever can send a request is an admin. Who may call at all is the business of
browsers.py, for every path. What writes must besides be a request that no form and no other origin can send without
being asked first: JSON, said to be JSON, with a header of our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.http.errors import UnsupportedType
from router.http.wire import JSON
from standard.domain.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Mapping

WRITE_HEADER: Final = "x-pointsman-console"
"""A write must bring it, with any value; browsers ask (preflight) before a page of another origin may send it."""


def require_write(headers: Mapping[str, str]) -> None:
    """Raise UnsupportedType or PermissionDenied for a write that a page of another site could have sent unasked."""
    content_type = headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if content_type != JSON:
        raise UnsupportedType("content-type", f"{content_type[:80]!r} is not taken here; send {JSON}")
    if not headers.get(WRITE_HEADER):
        raise PermissionDenied(f"a write needs the header {WRITE_HEADER}: 1")
