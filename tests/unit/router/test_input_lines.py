"""Lines of input are read up to a bound; one beyond it is refused by the id it begins with, and the next is read."""

from __future__ import annotations

import io
import json

import pytest

from router.cli.inputs import MAX_LINE_BYTES, BadLine, json_lines
from standard.corpus.document import MAX_DOCUMENT_BYTES
from standard.corpus.readers.jsonl import LINE_BYTES


def lines(*rows: bytes, most: int = 2_000) -> list[dict[str, object] | BadLine]:
    return list(json_lines(io.BytesIO(b"\n".join(rows)), most=most))


@pytest.mark.parametrize(
    ("beginning", "identity"),
    [
        (b'{"id": "a-7", "text": "', "a-7"),
        (b' { "id" : "caf\\u00e9" , "text": "', "café"),
        (b'{"id":"say \\"no\\"","text":"', 'say "no"'),
        (b'{"id": 12, "text": "', "12"),
        (b'{"text": "', "1"),
        (b'{"id": "', "1"),
        (b'{"id": "\xff", "text": "', "1"),
        (b'{"id": "bad \\q", "text": "', "1"),
    ],
)
def test_a_line_too_long_is_refused_by_its_own_id_where_it_begins_with_it(beginning: bytes, identity: str) -> None:
    refused, following = lines(beginning + b"x" * 5_000 + b'"}', b'{"id": "next"}')
    assert refused == BadLine(identity, "line 1 is longer than 2000 bytes")
    assert following == {"id": "next"}


def test_a_scan_reads_every_line_that_an_ingest_reads() -> None:
    assert LINE_BYTES > MAX_DOCUMENT_BYTES > MAX_LINE_BYTES
    row = {"id": "d", "text": "x" * (2 * MAX_LINE_BYTES)}
    assert lines(json.dumps(row).encode(), most=LINE_BYTES) == [row]
