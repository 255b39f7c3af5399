"""The console's page and its files, out of the package; read once at the start.

Answers, titles and questions are somebody else's text. Whatever would get past the page's own care with them finds
that the page may run no script and load nothing but its own files, and that no other page may frame it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from router.http.app import Served, fail_plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.http.asking import Call, HttpParts

PAGE: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What the page may do: run and load its own files, and speak to its own server."""
_HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    # Asked about each time, so that page and files are always of one release.
    ("cache-control", "no-cache"),
)


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the page. `tag` names its content, quoted as HTTP wants it."""

    name: str
    content: bytes
    content_type: str
    tag: str


def assets() -> list[Asset]:
    """Every file of the page."""
    found = []
    for file in sorted(files("router.http").joinpath("console_files").iterdir(), key=lambda each: each.name):
        suffix = "." + file.name.rpartition(".")[2]
        content = file.read_bytes()
        found.append(Asset(file.name, content, _TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"'))
    return found


def page_paths() -> list[Served]:
    """The page at `/` and its files under `/console/`."""
    return [Served("GET", _path(asset), _serving(asset), fail_plain, reads=False, open=True) for asset in assets()]


def _path(asset: Asset) -> str:
    return "/" if asset.name == PAGE else f"/console/{asset.name}"


def _serving(asset: Asset) -> Callable[[HttpParts, Call], Awaitable[None]]:
    headers = (*_HEADERS, ("etag", asset.tag))

    async def serve(_parts: HttpParts, call: Call) -> None:
        if asset.tag in call.request.headers.get("if-none-match", ""):
            await call.reply.whole(304, b"", asset.content_type, headers)
            return
        await call.reply.whole(200, asset.content, asset.content_type, headers)

    return serve
