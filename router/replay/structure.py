"""The structure of responses: learnt from what was recorded, then held against what came now.

A key is due where every recorded object had it and allowed where one had it; a value may be of any type seen at its
place. null tells nothing of a type. Whole numbers may stand for numbers, not the other way round. Strings are free text
unless their key tells a kind (event, type, object, …) or the contract lists their values.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from router.streams import EventStream, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from router.replay.recorded import Response

KIND_KEYS: Final = ("event", "type", "object")
"""Keys whose value tells what kind of event a stream's JSON is, first found first."""
_ENUM_KEYS: Final = frozenset({*KIND_KEYS, "mode", "role", "status", "finish_reason", "currency", "code", "kind"})
_ENUM_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_.-]{0,39}")
_MARK: Final = re.compile(r"\[?[A-Z_]{2,32}\]?")
_SILENT: Final = frozenset({"ping", "heartbeat"})
"""Events that say only that the line is alive."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs: `kind` is missing, extra, type, enum, status, content_type, order or broken."""

    kind: str
    path: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What a contract says about comparing: paths whose content is free, and closed lists of values by path."""

    free: frozenset[str] = frozenset()
    enums: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Shape:
    """What was seen at a place: types, keys with how many objects had them, the shape of items, and words."""

    types: set[str] = field(default_factory=set)
    objects: int = 0
    keys: dict[str, Shape] = field(default_factory=dict)
    had: dict[str, int] = field(default_factory=dict)
    items: Shape | None = None
    words: set[str] = field(default_factory=set)

    def learn(self, value: object) -> None:
        """Take in a value."""
        self.types.add(type_of(value))
        if isinstance(value, dict):
            self.objects += 1
            for key, inner in value.items():
                self.keys.setdefault(key, Shape()).learn(inner)
                self.had[key] = self.had.get(key, 0) + 1
        elif isinstance(value, list):
            self.items = self.items or Shape()
            for inner in value:
                self.items.learn(inner)
        elif isinstance(value, str):
            self.words.add(value)


def type_of(value: object) -> str:
    """The JSON type of a value; whole numbers are `integer`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def compare(shape: Shape, value: object, rules: Rules, path: str = "") -> list[Difference]:
    """How a value departs from what was seen; each difference once."""
    found: dict[Difference, None] = {}
    _compare(shape, value, rules, path, found)
    return list(found)


def _compare(shape: Shape, value: object, rules: Rules, path: str, found: dict[Difference, None]) -> None:
    known, kind = shape.types - {"null"}, type_of(value)
    if not known or path in rules.free:
        return
    if kind not in shape.types and not (kind == "integer" and "number" in known):
        found[Difference("type", path, " or ".join(sorted(shape.types)), kind)] = None
        return
    if isinstance(value, dict):
        for key, times in shape.had.items():
            if key not in value and times == shape.objects:
                found[Difference("missing", _below(path, key), " or ".join(sorted(shape.keys[key].types)), "")] = None
        for key, inner in value.items():
            if key in shape.keys:
                _compare(shape.keys[key], inner, rules, _below(path, key), found)
            else:
                found[Difference("extra", _below(path, key), "", type_of(inner))] = None
    elif isinstance(value, list):
        for inner in value:
            _compare(shape.items or Shape(), inner, rules, f"{path}[]", found)
    elif isinstance(value, str):
        allowed = _allowed(shape, path, rules)
        if allowed and value not in allowed:
            found[Difference("enum", path, " or ".join(sorted(allowed)), value[:80])] = None


def _allowed(shape: Shape, path: str, rules: Rules) -> set[str]:
    """The values that a place may have; empty = any."""
    listed = rules.enums.get(path)
    if listed is not None:
        return set(listed)
    key = path.rsplit(".", 1)[-1]
    if key in _ENUM_KEYS and all(_ENUM_WORD.fullmatch(word) for word in shape.words):
        return shape.words
    return set()


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


@dataclass(frozen=True, slots=True)
class Part:
    """One event of a stream, or a whole body (kind ""); `value` is JSON, or text where it is none."""

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Parsed:
    """A response taken apart; `broken` says why it could not be."""

    media: str
    parts: tuple[Part, ...]
    broken: str = ""


def parse(response: Response) -> Parsed:
    """Take a response apart by its media type."""
    media = response.content_type.split(";", 1)[0].strip().lower()
    if media == "text/event-stream":
        return Parsed(media, tuple(_events(response.text)))
    try:
        if media in {"application/x-ndjson", "application/ndjson", "application/jsonl"}:
            lines = (json.loads(line) for line in lines_of(response.text) if line.strip())
            return Parsed(media, tuple(Part(_kind("", value), value) for value in lines))
        if media.endswith("json"):
            return Parsed(media, (Part("", json.loads(response.text)),))
    except (ValueError, RecursionError) as error:
        return Parsed(media, (), f"is no {media}: {error}")
    return Parsed(media, (Part("", response.text),))


def _events(text: str) -> Iterable[Part]:
    events = EventStream(len(text) + 1)
    for line in [*lines_of(text), ""]:  # a recording may end before its last blank line
        event = events.line(line)
        if event is not None:
            yield to_part(*event)


def to_part(name: str, data: Any) -> Part:  # noqa: ANN401 - JSON
    """An event by its name and data; data that is text is read as JSON where it is some."""
    value = data
    if isinstance(data, str):
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = data
    return Part(_kind(name, value), value)


def _kind(name: str, value: object) -> str:
    if name:
        return name
    if isinstance(value, dict):
        for key in KIND_KEYS:
            if isinstance(value.get(key), str):
                return str(value[key])
        return "error" if "error" in value else "data"
    return value if isinstance(value, str) and _MARK.fullmatch(value) else "data"


class Learnt:
    """What all recorded responses of one endpoint have in common."""

    def __init__(self) -> None:
        self.media: set[str] = set()
        self.statuses: set[int] = set()
        self._shapes: dict[str, Shape] = {}
        self._orders: list[list[str]] = []

    def learn(self, response: Response, parsed: Parsed) -> None:
        """Take in a recorded response."""
        self.media.add(parsed.media)
        self.statuses.add(response.status)
        self._orders.append(_order(parsed))
        for part in parsed.parts:
            self._shapes.setdefault(part.kind, Shape()).learn(part.value)

    def differences(self, recorded: Response, response: Response, rules: Rules) -> list[Difference]:
        """How a response departs from them."""
        parsed = parse(response)
        found: dict[Difference, None] = {}
        if response.status != recorded.status:
            found[Difference("status", "", str(recorded.status), str(response.status))] = None
        if parsed.media not in self.media:
            found[Difference("content_type", "", " or ".join(sorted(self.media)), parsed.media)] = None
            return list(found)
        if parsed.broken:
            found[Difference("broken", "", parsed.media, parsed.broken[:200])] = None
            return list(found)
        for difference in self._of_kinds(_order(parsed)):
            found[difference] = None
        for part in parsed.parts:
            shape = self._shapes.get(part.kind)
            if shape is None or part.kind in _SILENT:
                continue
            for each in compare(shape, part.value, rules):
                path = f"<{part.kind}> {each.path}".rstrip() if part.kind else each.path
                found[Difference(each.kind, path, each.expected, each.found)] = None
        return list(found)

    def _of_kinds(self, ours: list[str]) -> Iterable[Difference]:
        """Kinds of events that are due and not there, that nobody expects, or that come in another order."""
        due = set.intersection(*map(set, self._orders)) if self._orders else set()
        known = set(self._shapes)
        for kind in sorted(due - set(ours)):
            yield Difference("missing", f"<{kind}>", "an event", "")
        for kind in sorted(set(ours) - known):
            yield Difference("extra", f"<{kind}>", "", "an event")
        common = [kind for kind in ours if kind in due]
        for before, after in pairwise(common):
            if all(order.index(before) > order.index(after) for order in self._orders):
                yield Difference("order", f"<{before}>", f"after <{after}>", f"before <{after}>")


def _order(parsed: Parsed) -> list[str]:
    """Kinds in order of their first appearance."""
    return [kind for kind in dict.fromkeys(part.kind for part in parsed.parts) if kind not in _SILENT]
