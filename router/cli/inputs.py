"""Lines of input files: JSON objects, one a line, each problem with its place."""

from __future__ import annotations

import io
import json
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from standard.domain.errors import InvalidInput
from standard.unicode import encodable

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINE_BYTES = 1_048_576
_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*("(?:[^"\\]|\\.){0,256}"|-?\d{1,32}(?=\s*[,}]))')


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no usable object; `id` is its own where it has one, else its line number."""

    id: str
    error: str


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A file's bytes; `-` is standard input."""
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        handle = io.open(path, "rb")  # noqa: SIM115, UP020 - a path, or a pipe of the shell; closed below
    except OSError as error:
        raise InvalidInput("FILE", f"{path}: {error.strerror or error}") from None
    with handle:
        yield handle


def is_file(name: str) -> bool:
    """Say whether an argument that may be a text or a FILE names a file that is there."""
    try:
        return len(name) < 4096 and Path(name).is_file()
    except (OSError, ValueError):  # too long, or a NUL: no name of a file
        return False


def stdin_holds_objects() -> bool:
    """Say whether standard input begins with a JSON object, leaving it unread."""
    stdin = sys.stdin.buffer
    return isinstance(stdin, io.BufferedReader) and stdin.peek(1).lstrip()[:1] == b"{"


def json_lines(handle: IO[bytes], *, most: int = MAX_LINE_BYTES) -> Iterator[dict[str, Any] | BadLine]:
    """Yield each line's object or what is wrong with it, in order, one line in memory at a time; blank ones skipped.

    Each object has an `id`, a string: its own, or the line's number. A line of more than `most` bytes is not read, but
    for the id at its beginning.
    """
    number = 0
    while line := handle.readline(most + 1):
        number += 1
        if len(line) > most:
            own = _id_at_beginning(line[:1024])
            while line and not line.endswith(b"\n"):
                line = handle.readline(MAX_LINE_BYTES)
            yield BadLine(own or str(number), f"line {number} is longer than {most} bytes")
            continue
        if not line.strip():
            continue
        yield _parsed(line, number)


def _id_at_beginning(head: bytes) -> str:
    """The id of an object whose text begins with it; empty where it does not."""
    match = _ID.match(head)
    try:
        return str(json.loads(match[1])) if match else ""
    except ValueError:
        return ""


def _parsed(line: bytes, number: int) -> dict[str, Any] | BadLine:
    try:
        value = json.loads(line)
    except UnicodeDecodeError:
        return BadLine(str(number), f"line {number} is no valid UTF-8")
    except ValueError as error:
        return BadLine(str(number), f"line {number} is no JSON: {error}")
    except RecursionError:
        return BadLine(str(number), f"line {number} is nested too deep")
    if not isinstance(value, dict):
        return BadLine(str(number), f"line {number} is no JSON object")
    value["id"] = str(value.get("id", number))
    return value


def text_of(row: dict[str, Any], key: str) -> str:
    """A row's text under a key; InvalidInput where it is missing or no text."""
    value = row.get(key)
    if not isinstance(value, str):
        raise InvalidInput(key, "is missing" if value is None else "is no text")
    return value


def sendable_text_of(row: dict[str, Any], key: str) -> str:
    """As `text_of`, and InvalidInput for lone surrogates: JSON can hold them, no request can."""
    value = text_of(row, key)
    if encodable(value) != value:
        raise InvalidInput(key, "holds a lone surrogate, which is no character")
    return value
