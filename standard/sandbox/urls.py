"""Prevents: an answer that carries data off in an address, or leads a reader to a stranger's page.

Addresses in an answer are those of the sources it was made from, or of an allowlist; nothing is added to them. Any
other is taken out: a link leaves its text, an image nothing. The policy reads text the way every renderer might (an
address is an address in prose, in code, in HTML, behind entities or escapes); a CommonMark parser has the last word on
what is left.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

REMOVED = "[link removed]"


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """Which addresses may stand in an answer: `sources` exactly, and whatever lies under an address in `allowed`.

    `allowed` holds addresses such as https://docs.example.com/ (scheme, host, path prefix); a query or fragment is
    never allowed beyond what a source has itself.
    """

    sources: frozenset[str] = frozenset()
    allowed: tuple[tuple[str, str, str], ...] = ()

    def permits(self, address: str) -> bool:
        """Whether this absolute address may stand in an answer."""
        plain = _plain(address)
        if plain in self.sources:
            return True
        try:
            parts = urlsplit(plain)
        except ValueError:
            return False
        if parts.query or parts.fragment or "@" in parts.netloc or "?" in plain or "#" in plain:
            return False
        path = parts.path or "/"
        if ".." in path or "%2e" in path.lower() or "\\" in path:
            return False
        return any(
            parts.scheme == scheme and parts.netloc == host and (path == prefix or path.startswith(_folder(prefix)))
            for scheme, host, prefix in self.allowed
        )


def _folder(prefix: str) -> str:
    return prefix if prefix.endswith("/") else f"{prefix}/"


def url_policy(sources: Iterable[str] = (), allowlist: Iterable[str] = ()) -> UrlPolicy:
    """A policy for one answer: addresses of its sources, and the operator's allowlist (https://host/path)."""
    allowed = []
    for entry in allowlist:
        parts = urlsplit(_plain(entry))
        if not parts.scheme or not parts.netloc or parts.query or parts.fragment:
            raise ValueError(f"not an address to allow: {entry!r}; give scheme://host/path without query or fragment")
        allowed.append((parts.scheme, parts.netloc, parts.path or "/"))
    plain = {_plain(source) for source in sources if "://" in source}
    # a CommonMark parser hands addresses on in its own spelling
    return UrlPolicy(frozenset(plain | {_plain(_parser().normalizeLink(source)) for source in plain}), tuple(allowed))


def _plain(address: str) -> str:
    """Scheme and host in lower case, the slash at the end off; the rest as it is."""
    address = address.strip()
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)\Z", address, re.DOTALL)
    if match is None:
        return address
    return f"{match[1].lower()}://{match[2].lower()}{match[3]}".rstrip("/")


_HOST = r"(?:[\w-]+\.[\w.-]+|\[[0-9a-f:.]+\]|localhost|\d{6,})"
# What may be an address in a word, once entities and backslashes are resolved. The order matters: first match counts.
_ADDRESS = re.compile(
    r"(?P<full>[a-z][a-z0-9+.-]{0,30}:[/\\]{2}[^\s<>\"'`|)\]}«»“”]*)"
    rf"|(?P<bare>(?:(?<=[(<\"'=\[\s:>,;])|\A)[/\\]{{2}}{_HOST}[^\s<>\"'`|)\]}}]*)"
    r"|(?P<www>\bwww\d?\.[^\s<>\"'`|)\]}]+)"
    r"|(?P<other>\b(?:https?|ftp|file|javascript|vbscript|blob|tel|sms|mailto):(?=\S)[^\s<>\"'`|)\]}]*|\b(?:https?|ftp|javascript|vbscript|file):/?\Z|\bdata:[\w/+.;=-]*,[^\s<>\"'`|)\]}]*)",
    re.IGNORECASE,
)
_ENTITY_OR_ESCAPE = re.compile(
    r"&[#\w]{1,32};?|\\[!-/:-@\[-`{-~]|[\t\r\x00-\x08\u00ad\u200b-\u200f\u2060-\u2064\ufeff]"
)
_TRAILING = ".,;:!?…*_~"
_SUSPECT = re.compile(r"[:/\\&]|www", re.IGNORECASE)


def clean_word(word: str, policy: UrlPolicy) -> tuple[str, int]:
    """A stretch without white space, with each address that the policy does not permit taken out, and their number."""
    if not _SUSPECT.search(word):
        return word, 0
    removed = 0

    def judged(match: re.Match[str]) -> str:
        nonlocal removed
        said = match[0]
        body = said.rstrip(_TRAILING)
        if match.lastgroup == "full" and policy.permits(body):
            return said
        removed += 1
        return REMOVED + said[len(body) :]

    if _ENTITY_OR_ESCAPE.search(word):
        resolved = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", html.unescape(_ENTITY_OR_ESCAPE.sub(_resolve, word)))
        if _ADDRESS.search(resolved) and not _ADDRESS.search(word):
            return REMOVED, 1
        if _ADDRESS.search(resolved) and resolved != word:
            cleaned = _ADDRESS.sub(judged, resolved)
            if removed:
                return cleaned, removed
    return _ADDRESS.sub(judged, word), removed


def _resolve(match: re.Match[str]) -> str:
    said = match[0]
    if said[0] == "&":
        return html.unescape(said)
    return said[1] if said[0] == "\\" else ""


_IMAGE = re.compile(r"!\[([^\[\]]{0,1000})\]\(\s*<?\[link removed\][^()\n]{0,200}\)")
_LINK = re.compile(r"\[([^\[\]]{0,1000})\]\(\s*<?\[link removed\][^()\n]{0,200}\)")


def tidy(text: str) -> str:
    """Links and images whose address was taken out: a link leaves its text, an image its description."""
    if REMOVED not in text:
        return text
    return _LINK.sub(r"\1", _IMAGE.sub(r"\1", text))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": True})


def addresses_in(markdown: str) -> list[str]:
    """Every address that a CommonMark renderer would make a link, image or autolink of, and those in raw HTML."""
    found: list[str] = []
    for token in _parser().parse(markdown):
        _collect(token, found)
    return found


_ATTRIBUTE = re.compile(r"""=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
_STYLE_URL = re.compile(r"""url\(\s*["']?([^"')]*)|@import\s+["']([^"']*)""", re.IGNORECASE)


def _collect(token: Token, found: list[str]) -> None:
    for name in ("href", "src"):
        value = token.attrs.get(name)
        if value:
            found.append(str(value))
    if token.type in {"html_inline", "html_block"}:
        for pattern in (_ATTRIBUTE, _STYLE_URL):
            found += [
                html.unescape(next(g for g in m.groups() if g is not None))
                for m in pattern.finditer(token.content)
                if any(m.groups())
            ]
    for child in token.children or ():
        _collect(child, found)


_ABSOLUTE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:|[/\\]{2})", re.IGNORECASE)


def violations(markdown: str, policy: UrlPolicy) -> list[str]:
    """Addresses in `markdown` that lead elsewhere and are not permitted, as a parser sees them."""
    return [
        address
        for address in addresses_in(markdown)
        if _ABSOLUTE.match(_without_blanks(address)) and not policy.permits(_without_blanks(address))
    ]


def _without_blanks(address: str) -> str:
    """As a browser reads it: tabs, line breaks and control characters inside do not count."""
    return re.sub(r"[\x00-\x1f]", "", address).strip()


_STRUCTURE = str.maketrans({"[": "\\[", "]": "\\]", "<": "‹", ">": "›", "&": "＆"})


def defuse(markdown: str) -> str:
    """Text in which nothing is a link, image or tag any more: the last resort for what the parser still objects to."""
    return markdown.replace("\\", "").translate(_STRUCTURE)
