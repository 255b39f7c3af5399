"""Response templates: JSON whose strings hold placeholders. A recorded response becomes one by replacing its values.

    {"answer": "{answer}", "took": "{timings.total_seconds}", "id": "msg-{request_id}", "user": "{request:user}",
     "sources": {"$each": "passages", "$item": {"id": "{passage.id!uuid}", "score": "{passage.score}"}}}

    {"$with": "{request:input}", "answer": "{answer}"}

A string that is one placeholder becomes the value itself (number, list, null); among other text it becomes text.
`{a|b}` takes the first that is there and not empty; `{request:PATH}` echoes the request; `!text` and `!uuid` turn a
value into text, or into a UUID made from it; `{{` and `}}` are braces. `$with` begins an object with another's keys.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from router.http.contract.paths import MISSING, Path, Sources, look_up, parse_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EVERY: Final = -1
"""A step of `path_of` to each item of a list."""
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAMESPACE: Final = uuid.UUID("5f2c1c8e-6c1e-4b8b-9b53-0d9b6f0a7c11")


@dataclass(frozen=True, slots=True)
class Name:
    """One alternative of a placeholder: a value's name, or a path into the request; `turn` is "", text or uuid."""

    name: str
    path: Path | None
    turn: str


@dataclass(frozen=True, slots=True)
class Hole:
    """A placeholder: the first of its alternatives that is there."""

    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Text with holes, each piece a string or a hole."""

    pieces: tuple[str | Hole, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """A list made of an item a time; `items` is its name: passages, citations, history or answers."""

    items: str
    item: Template


@dataclass(frozen=True, slots=True)
class With:
    """An object that begins with the keys of `base`, where that is one; its own keys win."""

    base: Template
    keys: dict[str, Template]


Template: TypeAlias = (
    "Hole | Text | Each | With | dict[str, Template] | list[Template] | str | int | float | bool | None"
)


@dataclass(frozen=True, slots=True)
class Values:
    """What placeholders stand for: values by name, lists for `$each`, and the request to echo.

    An item of a list is a mapping of further values, or Values that stand alone: what a whole answer has.
    """

    named: Mapping[str, object]
    lists: Mapping[str, Sequence[Mapping[str, object] | Values]]
    request: Sources


@dataclass(frozen=True, slots=True)
class Alone:
    """The names within a list whose items are Values: only these, and the lists within."""

    known: frozenset[str]
    items: Items


Items: TypeAlias = "Mapping[str, frozenset[str] | Alone]"


def compile_json(text: str, known: frozenset[str], items: Items) -> Template:
    """Compile a template written as JSON. `known` are the names outside `$each`, `items` those within, by list.

    Raises ValueError for what is no JSON, an unknown name or a `$each` of nothing; the message says which.
    """
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    return _compiled(parsed, known, items)


def compile_text(text: str, known: frozenset[str]) -> Template:
    """Compile plain text with placeholders."""
    return _text(text, known)


def _compiled(value: Any, known: frozenset[str], items: Items) -> Template:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return _text(value, known)
    if isinstance(value, list):
        return [_compiled(item, known, items) for item in value]
    if not isinstance(value, dict):
        return value  # type: ignore[no-any-return]
    if "$with" in value:
        keys = {key: _compiled(item, known, items) for key, item in value.items() if key != "$with"}
        return With(_compiled(value["$with"], known, items), keys)
    if "$each" not in value:
        return {key: _compiled(item, known, items) for key, item in value.items()}
    name = value["$each"]
    if name not in items or set(value) != {"$each", "$item"}:
        known_lists = ", ".join(sorted(items)) or "nothing"
        raise ValueError(f'"$each" takes one of {known_lists} here, with "$item" beside it and nothing else')
    of_item = items[name]
    if isinstance(of_item, Alone):
        return Each(name, _compiled(value["$item"], of_item.known, of_item.items))
    return Each(name, _compiled(value["$item"], known | of_item, items))


def _text(text: str, known: frozenset[str]) -> Template:
    pieces: list[str | Hole] = []
    place = 0
    for found in _PIECE.finditer(text):
        pieces.append(text[place : found.start()])
        place = found.end()
        if found[0] in {"{{", "}}"}:
            pieces.append(found[0][0])
        elif found[1] is None:
            raise ValueError(f"a lone {found[0]!r} in {text!r:.80}; write {found[0] * 2!r} for the character")
        else:
            pieces.append(_hole(found[1], known))
    pieces.append(text[place:])
    kept = tuple(piece for piece in pieces if piece != "")
    if not any(isinstance(piece, Hole) for piece in kept):
        return "".join(str(piece) for piece in kept)
    return kept[0] if len(kept) == 1 and isinstance(kept[0], Hole) else Text(kept)


def _hole(text: str, known: frozenset[str]) -> Hole:
    return Hole(tuple(_name(part.strip(), known) for part in text.split("|")))


def _name(text: str, known: frozenset[str]) -> Name:
    name, _, turn = text.partition("!")
    if turn not in {"", "text", "uuid"}:
        raise ValueError(f"{{{text}}}: !{turn} is not known; use !text or !uuid")
    if name.startswith("request:"):
        return Name(name, parse_path(name.removeprefix("request:")), turn)
    if name not in known:
        raise ValueError(f"{{{text}}} is not known here; known are {', '.join(sorted(known))} and request:PATH")
    return Name(name, None, turn)


def render(template: Template, values: Values) -> object:
    """The JSON value of a template."""
    return _rendered(template, values, {})


def render_text(template: Template, values: Values) -> str:
    """The text of a text template."""
    rendered = _rendered(template, values, {})
    return _as_text(rendered)


def _rendered(template: Template, values: Values, item: Mapping[str, object]) -> object:
    match template:
        case Hole():
            return _filled(template, values, item)
        case Text(pieces=pieces):
            return "".join(
                piece if isinstance(piece, str) else _as_text(_filled(piece, values, item)) for piece in pieces
            )
        case Each(items=name, item=inner):
            return [
                _rendered(inner, each, {}) if isinstance(each, Values) else _rendered(inner, values, each)
                for each in values.lists[name]
            ]
        case With(base=base, keys=keys):
            first = _rendered(base, values, item)
            rest = {key: _rendered(inner, values, item) for key, inner in keys.items()}
            return {**first, **rest} if isinstance(first, dict) else rest
        case dict():
            return {key: _rendered(inner, values, item) for key, inner in template.items()}
        case list():
            return [_rendered(inner, values, item) for inner in template]
    return template


def _filled(hole: Hole, values: Values, item: Mapping[str, object]) -> object:
    value: object = None
    for name in hole.names:
        if name.path is not None:
            found = look_up(name.path, values.request)
            value = None if found is MISSING else found
        else:
            value = item[name.name] if name.name in item else values.named.get(name.name)
        if value is not None and value != "":
            return _turned(value, name.turn)
    return value


def _turned(value: object, turn: str) -> object:
    if turn == "text":
        return _as_text(value)
    if turn == "uuid":
        return as_uuid(_as_text(value))
    return value


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def as_uuid(text: str) -> str:
    """A UUID of a text: itself where it is one, else one made from it, the same for the same text."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(uuid.uuid5(_NAMESPACE, text))


def names_used(template: Template) -> set[str]:
    """The names of all values and lists that a template uses."""
    match template:
        case Hole(names=names):
            return {name.name for name in names}
        case Text(pieces=pieces):
            return set().union(*(names_used(piece) for piece in pieces if isinstance(piece, Hole)))
        case Each(items=items, item=inner):
            return {items} | names_used(inner)
        case With(base=base, keys=keys):
            return names_used(base).union(*map(names_used, keys.values()))
        case dict():
            return set().union(*(names_used(inner) for inner in template.values()))
        case list():
            return set().union(*(names_used(inner) for inner in template))
    return set()


def path_of(template: Template, name: str) -> tuple[str | int, ...] | None:
    """Where in the rendered JSON a value stands by itself; None where it does not. EVERY is each item of a batch."""
    match template:
        case Each(items="answers", item=inner):
            within = path_of(inner, name)
            return None if within is None else (EVERY, *within)
        case Hole(names=names) if any(each.name == name for each in names):
            return ()
        case dict() | With():
            keys = template.keys if isinstance(template, With) else template
            steps: list[tuple[str | int, Template]] = list(keys.items())
        case list():
            steps = list(enumerate(template))
        case _:
            return None
    for step, inner in steps:
        below = path_of(inner, name)
        if below is not None:
            return (step, *below)
    return None
