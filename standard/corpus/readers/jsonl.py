"""JSON Lines: one document a line, {"id", "title", "text", "uri", "metadata", "groups"}; id and text are required.

Prevents a bad line from taking the file down, and a line without end from taking the memory: lines are read up to a
bound, and what is wrong with one is said with its number. Other keys are ignored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, BinaryIO

from standard.corpus.document import MAX_DOCUMENT_BYTES, Rejection, SourceDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

_OVERHEAD = 4  # a character of a text takes up to six bytes of JSON, rarely more than this on average
_BESIDE = 64 * 1024  # for what stands beside the text
LINE_BYTES = _OVERHEAD * MAX_DOCUMENT_BYTES + _BESIDE
"""The longest line that is read where documents may have the usual size."""


def read_jsonl(stream: BinaryIO, *, source: str, max_bytes: int, uri: str = "") -> Iterator[SourceDocument | Rejection]:
    """Yield the documents of a stream of bytes; blank lines are skipped. `max_bytes` bounds a document's text."""
    limit = _OVERHEAD * max_bytes + _BESIDE
    number = 0
    while line := stream.readline(limit):
        number += 1
        if len(line) == limit and not line.endswith(b"\n"):
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
            yield Rejection(source, number, f"the line is longer than {limit} bytes")
            continue
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield _read_line(line, source, number, uri)


def _read_line(line: bytes, source: str, number: int, uri: str) -> SourceDocument | Rejection:
    try:
        row = json.loads(line.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as problem:
        return Rejection(source, number, f"not UTF-8: byte 0x{line[problem.start]:02x} at {problem.start}")
    except RecursionError:
        return Rejection(source, number, "not JSON that can be read: nested too deeply")
    except ValueError as problem:
        return Rejection(source, number, f"not JSON: {problem}")
    if not isinstance(row, dict):
        return Rejection(source, number, f"a JSON object is expected, this is a {type(row).__name__}")
    document_id = row.get("id")
    if isinstance(document_id, int) and not isinstance(document_id, bool):
        document_id = str(document_id)
    if not isinstance(document_id, str) or not document_id:
        return Rejection(source, number, "the key 'id' is missing or no text")
    fields = {}
    for key, default in (("title", ""), ("text", None), ("uri", uri)):
        value = row.get(key)
        if value is None:
            value = default
        if not isinstance(value, str):
            problem_text = "is missing" if value is None else f"is a {type(value).__name__}, no text"
            return Rejection(source, number, f"the key {key!r} {problem_text}", document_id)
        fields[key] = value
    metadata = row.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        return Rejection(source, number, f"the key 'metadata' is a {type(metadata).__name__}, no object", document_id)
    groups = row.get("groups")
    if groups is None:
        groups = []
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        return Rejection(source, number, "the key 'groups' is no list of texts", document_id)
    return SourceDocument(
        document_id=document_id,
        title=fields["title"],
        text=fields["text"],
        uri=fields["uri"],
        metadata=metadata,
        groups=tuple(groups),
        source=source,
        line=number,
    )


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")
