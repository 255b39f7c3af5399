"""Paths into JSON: `input.messages[-1].content`, `messages[role=user][-1].content`, `@header.x-user`, `@path.id`.

A path is steps: a key, `[number]` (negative from the end), `[key=text]` (the elements of a list whose key has that
text). The first key may be @header, @path or @query instead: one header, path parameter or query parameter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

MISSING: Final = object()
"""What is not there; null is there."""

_STEP = re.compile(
    r"\[(?P<index>-?\d{1,6})\]|\[(?P<key>[^\[\]=.]+)=(?P<text>[^\[\]]*)\]|(?P<dot>\.?)(?P<name>[^.\[\]]+)"
)
_ROOTS: Final = ("@header", "@path", "@query")


@dataclass(frozen=True, slots=True)
class Where:
    """The elements of a list whose `key` has the text."""

    key: str
    text: str


Step: TypeAlias = "str | int | Where"


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path; `root` is "" for the body, else @header, @path or @query."""

    text: str
    root: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where paths start: the body, headers (names in lower case), path parameters, query parameters."""

    body: Mapping[str, Any]
    headers: Mapping[str, str]
    path: Mapping[str, Any]
    query: Mapping[str, str]


def parse_path(text: str) -> Path:
    """Parse a path. Raises ValueError, saying where it goes wrong."""
    steps: list[Step] = []
    place = 0
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None or (found["name"] is not None and bool(found["dot"]) is (place == 0)):
            raise ValueError(f"path {text!r} goes wrong at character {place + 1}: {text[place : place + 12]!r}")
        if found["index"] is not None:
            steps.append(int(found["index"]))
        elif found["key"] is not None:
            steps.append(Where(found["key"], found["text"]))
        else:
            steps.append(found["name"])
        place = found.end()
    if not steps:
        raise ValueError("a path is empty")
    first = steps[0]
    if isinstance(first, str) and first.startswith("@"):
        if first not in _ROOTS:
            raise ValueError(f"path {text!r}: {first} is no source; use a key of the body, @header, @path or @query")
        if len(steps) != 2 or not isinstance(steps[1], str):
            raise ValueError(f"path {text!r}: {first} takes one name, as in {first}.name")
        name = steps[1].lower() if first == "@header" else steps[1]
        return Path(text, first, (name,))
    return Path(text, "", tuple(steps))


def look_up(path: Path, sources: Sources) -> object:
    """What is at a path, or MISSING."""
    if path.root:
        origin: Mapping[str, Any] = {"@header": sources.headers, "@path": sources.path, "@query": sources.query}[
            path.root
        ]
        return origin.get(str(path.steps[0]), MISSING)
    return walk(path.steps, sources.body)


def walk(steps: tuple[Step, ...], value: object) -> object:
    """Follow steps into a JSON value; MISSING where they lead nowhere."""
    for step in steps:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return MISSING
            value = value[step]
        elif not isinstance(value, list):
            return MISSING
        elif isinstance(step, Where):
            value = [item for item in value if isinstance(item, dict) and str(item.get(step.key)) == step.text]
        elif -len(value) <= step < len(value):
            value = value[step]
        else:
            return MISSING
    return value
