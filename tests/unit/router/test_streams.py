"""Streams are taken apart at line ends alone, however they are cut, and hold no more than they should."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.replay.recorded import Response
from router.replay.structure import parse
from router.streams import EventStream, Lines, TooLong, lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"
"""Where `str.splitlines` ends a line and a stream does not."""
TEXTS = st.text(st.sampled_from("ab:\r\n" + SEPARATORS), max_size=30)


def fed(pieces: Sequence[str], most: int = 100) -> list[str]:
    lines = Lines(most)
    return [line for piece in pieces for line in lines.feed(piece)] + [lines.finish()]


@given(TEXTS, st.lists(st.integers(0, 30), max_size=6))
def test_lines_end_at_crlf_lf_and_cr_wherever_a_stream_is_cut(text: str, cuts: list[int]) -> None:
    places = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert fed(pieces) == re.split(r"\r\n|\n|\r", text)
    assert lines_of(text) == re.split(r"\r\n|\n|\r", text)


def test_a_line_without_end_is_given_up_on_with_little_in_memory() -> None:
    lines = Lines(1000)
    for taken in range(7, 1000, 7):
        assert lines.feed("x" * 7) == []
        assert lines.held == taken
    with pytest.raises(TooLong, match="1000"):
        lines.feed("x" * 7)


def test_lines_that_end_are_no_sum() -> None:
    lines = Lines(10)
    assert sum(len(lines.feed("1234567\n")) for _ in range(1000)) == 1000


@pytest.mark.parametrize(("line", "most"), [("data: 1234567", 12), ("data:", 100)])
def test_an_event_without_end_is_given_up_on(line: str, most: int) -> None:
    events = EventStream(100)
    for _ in range(most):
        assert events.line(line) is None
    with pytest.raises(TooLong, match="100"):
        events.line(line)


def test_events_have_a_name_and_the_lines_of_their_data() -> None:
    told = "event: a\ndata: 1\ndata:2\n\n: comment\nid: 7\n\nevent: end\n\ndata\n\n"
    events = EventStream(100)
    assert [found for line in lines_of(told) if (found := events.line(line))] == [("a", "1\n2"), ("end", ""), ("", "")]


def test_recorded_streams_keep_what_only_looks_like_a_line_end() -> None:
    value = {"type": "token", "text": f"one{SEPARATORS}two"}
    # JSON may hold all of them but the control characters below U+0020 as they are.
    raw = json.dumps(value, ensure_ascii=False)
    ndjson = parse(Response(200, "application/x-ndjson", f"{raw}\n{raw}\n"))
    assert [part.value for part in ndjson.parts] == [value, value]
    assert not ndjson.broken
    sse = parse(Response(200, "text/event-stream", f"data: {raw}\r\n\r\ndata: {raw}\r\n\r\n"))
    assert [part.value for part in sse.parts] == [value, value]
