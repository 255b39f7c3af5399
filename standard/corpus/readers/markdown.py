"""Markdown, with YAML front matter, and plain text.

Front matter may set `id`, `title`, `uri` (or `url`), `groups`; its other keys become metadata. The text stays as it is
written: the chunker understands Markdown.
"""

from __future__ import annotations

import datetime as dt
import re

import yaml

from standard.corpus.readers.extracted import Extracted, Unreadable, decode_text, title_from

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_MAX_FRONT_MATTER = 64 * 1024
_MAX_VALUES = 2000


def read_markdown(data: bytes) -> Extracted:
    """Read a Markdown file. Raises Unreadable for bytes that are no text or front matter that is no YAML mapping."""
    text = decode_text(data)
    matter: dict[str, object] = {}
    match = _FRONT_MATTER.match(text)
    if match is not None and len(match[0]) <= _MAX_FRONT_MATTER and _looks_like_yaml(match[1] or ""):
        matter = _front_matter(match[1] or "")
        text = text[match.end() :]
    text = text.strip("\n")
    groups = matter.pop("groups", None) or []
    if isinstance(groups, str):
        groups = [groups]
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise Unreadable("the front matter's `groups` is no list of texts")
    document_id, title, uri, url = (_text(matter, key) for key in ("id", "title", "uri", "url"))
    return Extracted(
        title=title_from(title),
        text=text,
        document_id=document_id,
        uri=uri or url,
        metadata=matter,
        groups=tuple(groups),
    )


def read_text(data: bytes) -> Extracted:
    """Read a plain text file; its title is left to its name."""
    return Extracted(title="", text=decode_text(data).strip("\n"))


def _looks_like_yaml(block: str) -> bool:
    """Tell front matter from a text that begins with a rule: its first line is a key."""
    lines = [line for line in block.split("\n") if line.strip() and not line.startswith("#")]
    return not lines or re.match(r"[\w\"'-][^:\n]*:(\s|$)", lines[0]) is not None


def _front_matter(block: str) -> dict[str, object]:
    try:
        value = yaml.safe_load(block)
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        raise Unreadable(f"the front matter is no YAML: {title_from(str(problem))}") from problem
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Unreadable("the front matter is no mapping of keys to values")
    left = [_MAX_VALUES]
    return {str(key): _plain(inner, left, 1) for key, inner in value.items()}


def _plain(value: object, left: list[int], depth: int) -> object:
    """Turn YAML's values into JSON's. Aliases may make few lines into millions of values, so those are counted."""
    left[0] -= 1
    if left[0] < 0 or depth > 8:
        raise Unreadable("the front matter holds too many values, or nests them too deeply")
    if isinstance(value, dict):
        return {str(key): _plain(inner, left, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(inner, left, depth + 1) for inner in value]
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def _text(matter: dict[str, object], key: str) -> str:
    value = matter.pop(key, None)
    if value is None or isinstance(value, (dict, list)):
        return ""
    return str(value).strip()
