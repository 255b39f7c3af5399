"""A document on its way into a collection: what it holds, what is refused, and when two are the same."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ID = 512
MAX_TITLE = 1000
MAX_URI = 2048
MAX_GROUPS = 64
MAX_GROUP = 128
MAX_METADATA_BYTES = 16 * 1024
MAX_METADATA_KEYS = 64
MAX_METADATA_DEPTH = 4
MAX_METADATA_KEY = 128
MAX_DOCUMENT_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document as a reader or a client hands it over; everything in it is untrusted.

    `text` is plain text with Markdown headings and tables. `groups` are the access groups that may see it, none =
    everyone of the tenant. `source` and `line` say where it came from, for messages: a path or "stdin", and the line in
    a JSONL file (0 = the whole file).
    """

    document_id: str
    title: str
    text: str
    uri: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    source: str = ""
    line: int = 0

    def content_hash(self) -> str:
        """SHA-256, as 64 hex digits, of title, text, URI, metadata and groups."""
        parts = [self.title, self.text, self.uri, canonical_json(self.metadata), *sorted(set(self.groups))]
        digest = hashlib.sha256()
        for part in parts:
            encoded = part.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big"))
            digest.update(encoded)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Rejection:
    """An input that did not go in, and why. `document_id` where it is known; `line` 0 = the whole source."""

    source: str
    line: int
    reason: str
    document_id: str = ""


def canonical_json(metadata: Mapping[str, object]) -> str:
    """Return metadata as JSON with sorted keys, the same text for the same values."""
    return json.dumps(metadata, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def refusal(document: SourceDocument, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> str | None:
    """Return why the document cannot be stored, or None. `max_bytes` bounds its text in UTF-8."""
    for name, value, limit in (
        ("id", document.document_id, MAX_ID),
        ("title", document.title, MAX_TITLE),
        ("uri", document.uri, MAX_URI),
    ):
        if len(value) > limit:
            return f"{name} has {len(value)} characters, {limit} are allowed"
        if reason := _unstorable(value):
            return f"{name} {reason}"
    if not document.document_id.strip():
        return "id is empty"
    if not document.document_id.isprintable():
        return "id holds control characters"
    if len(document.text) > max_bytes:
        return f"text has more than {len(document.text)} bytes, {max_bytes} are allowed"
    if reason := _unstorable(document.text):
        return f"text {reason}"
    if (size := len(document.text.encode())) > max_bytes:
        return f"text has {size} bytes, {max_bytes} are allowed"
    if not document.text.strip():
        return "text is empty"
    if len(document.groups) > MAX_GROUPS:
        return f"{len(document.groups)} groups, {MAX_GROUPS} are allowed"
    if any(not 1 <= len(group) <= MAX_GROUP or _unstorable(group) for group in document.groups):
        return f"a group's name has 1 to {MAX_GROUP} characters"
    return metadata_refusal(document.metadata)


def metadata_refusal(metadata: Mapping[str, object]) -> str | None:
    """Return what is wrong with metadata, or None: only JSON values, bounded in size, nesting and number of keys."""
    keys = 0
    waiting: list[tuple[object, int]] = [(metadata, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_METADATA_DEPTH + 1:
            return f"metadata is nested deeper than {MAX_METADATA_DEPTH} levels"
        if isinstance(value, str):
            if reason := _unstorable(value):
                return f"metadata {reason}"
        elif isinstance(value, float):
            if not math.isfinite(value):
                return "metadata holds a number that is not finite"
        elif isinstance(value, dict):
            keys += len(value)
            if keys > MAX_METADATA_KEYS:
                return f"metadata has more than {MAX_METADATA_KEYS} keys"
            for key, inner in value.items():
                if not isinstance(key, str) or len(key) > MAX_METADATA_KEY or _unstorable(key):
                    return f"a metadata key is a text of up to {MAX_METADATA_KEY} characters"
                waiting.append((inner, depth + 1))
        elif isinstance(value, (list, tuple)):
            if len(value) > MAX_METADATA_BYTES:
                return f"metadata has more than {MAX_METADATA_BYTES} bytes of JSON"
            waiting += [(inner, depth + 1) for inner in value]
        elif not (value is None or isinstance(value, (bool, int))):
            return f"metadata holds a {type(value).__name__}, which is no JSON value"
    if (size := len(canonical_json(metadata).encode())) > MAX_METADATA_BYTES:
        return f"metadata has {size} bytes of JSON, {MAX_METADATA_BYTES} are allowed"
    return None


def _unstorable(text: str) -> str | None:
    """Return what makes a text unfit for PostgreSQL, or None."""
    if "\x00" in text:
        return f"holds a NUL character (at {text.index(chr(0))})"
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        return f"holds half of a surrogate pair (at {problem.start})"
    return None
