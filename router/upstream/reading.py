"""An upstream's response, read by the contract that describes it: pieces of an answer out of bytes as they come."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from router.http.contract.template import path_of
from router.replay.answers import Reader, kind_of_frame, reader_of
from router.replay.structure import Part, to_part
from router.streams import EventStream, Lines, TooLong
from router.upstream.failures import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from router.http.contract.compiled import ContractRoute

_HELD_CHARS: Final = 4_194_304
"""Longest line, and longest event."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """What a contract's responses look like: where the answer is, which events end a stream, which are errors."""

    reader: Reader
    ends: frozenset[str]
    errors: frozenset[str]
    media: str


def shapes_of(route: ContractRoute) -> Shapes:
    """The shapes of a route. Raises ValueError where its templates do not say where the answer is."""
    reader = reader_of(route, frozenset())
    if reader.whole is None and not reader.pieces and not _plain_text(route):
        raise ValueError("neither its response nor its stream says where the answer is")
    frames = route.stream.frames if route.stream is not None else {}
    tokens = {piece.kind for piece in reader.pieces}
    return Shapes(
        reader,
        frozenset(kind for frame in frames.get("end", ()) if (kind := kind_of_frame(frame))) - tokens,
        frozenset(kind for frame in frames.get("error", ()) if (kind := kind_of_frame(frame))) - tokens,
        "" if route.stream is None else route.stream.content_type.split(";", 1)[0].strip().lower(),
    )


def _plain_text(route: ContractRoute) -> bool:
    unary = route.unary is not None and not route.unary.is_json and path_of(route.unary.template, "answer") == ()
    return unary or (route.stream is not None and route.stream.framing == "raw")


class Incremental:
    """Reads a stream as it comes. After its end, `finished` tells whether the stream said that it is over.

    Raises Malformed for an event that tells an error, and for what is longer than is held.
    """

    def __init__(self, shapes: Shapes, *, sse: bool) -> None:
        self._shapes = shapes
        self._lines = Lines(_HELD_CHARS)
        self._events = EventStream(_HELD_CHARS) if sse else None
        self._ended = False

    @property
    def finished(self) -> bool:
        """Whether the end came; always, where the contract names no event that ends a stream."""
        return self._ended or not self._shapes.ends

    def feed(self, text: str) -> Iterator[str]:
        """The pieces of the answer that are whole with this text."""
        try:
            for line in self._lines.feed(text):
                yield from self._line(line)
        except TooLong as error:
            raise Malformed(str(error)) from None

    def end(self) -> Iterator[str]:
        """The pieces that only the end of the stream makes whole."""
        try:
            for line in (self._lines.finish(), ""):
                yield from self._line(line)
        except TooLong as error:
            raise Malformed(str(error)) from None

    def _line(self, line: str) -> Iterable[str]:
        if self._events is None:
            return self._piece(_json_part(line)) if line.strip() else ()
        event = self._events.line(line)
        return () if event is None else self._piece(to_part(*event))

    def _piece(self, part: Part) -> Iterable[str]:
        if part.kind in self._shapes.errors:
            raise Malformed("its stream told of an error")
        self._ended = self._ended or part.kind in self._shapes.ends
        found = self._shapes.reader.piece(part)
        return () if not found else (found,)


def _json_part(line: str) -> Part:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise Malformed("a line is no JSON") from None
    return to_part("", value)


def whole_answer(shapes: Shapes, media: str, text: str) -> str:
    """The answer of a response that is not streamed. Raises Malformed."""
    if not media.endswith("json"):
        if media == "text/plain" and shapes.reader.whole is None:
            return text
        raise Malformed(f"its response is {media or 'of no type'}, not JSON")
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("its response is no JSON") from None
    found = shapes.reader.whole_of(value)
    if found is None:
        raise Malformed("its response has no answer where the contract says")
    return found
