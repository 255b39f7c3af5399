"""Text streams taken apart: lines, and the server-sent events that lines make.

What goes wrong without it: `str.splitlines`, and what rests on it, also ends a line at U+2028, NEL, form feed and the
like, which may stand within JSON and within a server-sent event; and a line without end is held whole in memory.
"""

from __future__ import annotations

import io
import re
from typing import Final

_END: Final = re.compile(r"\r\n|\n|\r")


class TooLong(Exception):
    """A line, or the data of an event, is longer than what is held; the message says how long that is."""


class Lines:
    """Splits text that comes in pieces of any size at CRLF, LF and CR; at most `most` characters of a line are held."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = io.StringIO()
        self._size = 0
        self._returned = False

    @property
    def held(self) -> int:
        """Characters of the line that has not ended."""
        return self._size

    def feed(self, text: str) -> list[str]:
        """The lines that end with this piece. Raises TooLong."""
        if self._returned and text:
            text = text.removeprefix("\n")  # the other half of a CRLF
            self._returned = False
        if not text:
            return []
        self._returned = text.endswith("\r")
        lines: list[str] = []
        *whole, rest = _END.split(text)
        for piece in whole:
            self._hold(piece)
            lines.append(self.finish())
        self._hold(rest)
        return lines

    def finish(self) -> str:
        """What is held of a last line that nothing ended."""
        line = self._held.getvalue()
        self._held = io.StringIO()
        self._size = 0
        return line

    def _hold(self, piece: str) -> None:
        self._size += len(piece)
        if self._size > self._most:
            raise TooLong(f"a line is longer than {self._most} characters")
        self._held.write(piece)


def lines_of(text: str) -> list[str]:
    """The lines of a whole text; the last is "" where the text ends with its line."""
    lines = Lines(len(text))
    return [*lines.feed(text), lines.finish()]


class EventStream:
    """Server-sent events out of lines, by the WHATWG's rules for fields; at most `most` characters of one are held.

    An event without data counts where it has a name: legacy servers end their streams so.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def line(self, line: str) -> tuple[str, str] | None:
        """The event (name, data) that ends with this line, if one does. Raises TooLong."""
        if not line:
            return self._ended()
        label, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if label == "event":
            self._name = value
        elif label == "data":
            self._size += len(value) + 1
            if self._size > self._most:
                raise TooLong(f"an event is longer than {self._most} characters")
            self._data.append(value)
        return None

    def _ended(self) -> tuple[str, str] | None:
        ended = (self._name, "\n".join(self._data)) if self._data or self._name else None
        self._name, self._data, self._size = "", [], 0
        return ended
