"""Page tokens: the last key of a page, opaque to clients and stable while rows come and go."""

from __future__ import annotations

import base64
import binascii

from standard.domain.errors import InvalidInput

MAX_PAGE = 1000


def write_token(last_key: str) -> str:
    """Return the token of the page that follows `last_key`."""
    return base64.urlsafe_b64encode(b"1" + last_key.encode()).decode().rstrip("=")


def read_token(token: str) -> str:
    """Return the key to continue after; "" for the first page. Raises InvalidInput for what we never wrote."""
    if not token:
        return ""
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        if raw[:1] != b"1" or b"\x00" in raw:
            raise ValueError("another format")
        return raw[1:].decode()
    except (binascii.Error, ValueError) as problem:
        raise InvalidInput("page_token", "is none that this server gave out; leave it empty to start over") from problem


def check_page_size(size: int) -> int:
    """Return the size; 0 means the default of 100. Raises InvalidInput outside 0-1,000."""
    if not 0 <= size <= MAX_PAGE:
        raise InvalidInput("page_size", f"must be 0 (the default, 100) to {MAX_PAGE}")
    return size or 100
