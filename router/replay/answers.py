"""Where the words of an answer stand in a response: known for our own façades, told by the contract for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import compile_path

from router.http.contract.template import EVERY, path_of
from router.replay.structure import KIND_KEYS, Rules, to_part

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping, Sequence

    from router.http.contract.compiled import Contract, ContractRoute, Frame
    from router.replay.structure import Parsed, Part

Steps = tuple["str | int", ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Events that carry a piece of the answer: their name or kind ("" = any), and where in them it is."""

    kind: str
    steps: Steps


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the answer out of the responses of paths that match."""

    pattern: re.Pattern[str]
    method: str
    whole: Steps | None
    pieces: tuple[Piece, ...]
    rules: Rules

    def answer(self, parsed: Parsed) -> str | None:
        """The answer of a response; None where there is none to be found."""
        if len(parsed.parts) == 1 and parsed.parts[0].kind == "":
            value = parsed.parts[0].value
            return value if isinstance(value, str) else self.whole_of(value)
        words = [word for part in parsed.parts if (word := self.piece(part)) is not None]
        return "".join(words) if words else None

    def whole_of(self, value: Any) -> str | None:  # noqa: ANN401 - JSON
        """The answer within a whole response; None where there is none."""
        found = None if self.whole is None else _at(self.whole, value)
        return found if isinstance(found, str) else None

    def piece(self, part: Part) -> str | None:
        """The piece of the answer that an event carries; None where it carries none."""
        for piece in self.pieces:
            if piece.kind in {"", part.kind}:
                found = _at(piece.steps, part.value)
                if isinstance(found, str):
                    return found
        return None


def _at(steps: Steps, value: Any) -> object:  # noqa: ANN401 - JSON
    for place, step in enumerate(steps):
        if step == EVERY:
            found = [_at(steps[place + 1 :], each) for each in value] if isinstance(value, list) else []
            return "\n".join(each for each in found if isinstance(each, str)) or None
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


_ANY: Final[Steps] = ("choices", 0, "delta", "content")


def own_readers() -> list[Reader]:
    """Readers of our own façades."""

    def reader(path: str, whole: Steps, *pieces: Piece) -> Reader:
        return Reader(compile_path(path)[0], "POST", whole, pieces, Rules())

    return [
        reader("/v1/chat/completions", ("choices", 0, "message", "content"), Piece("", _ANY)),
        reader("/query", ("answer",), Piece("", ("token", "text"))),
    ]


def readers_of(contracts: Sequence[Contract]) -> list[Reader]:
    """Readers of the routes of contracts."""
    return [
        reader_of(route, frozenset(contract.compare.free), contract.compare.enums)
        for contract in contracts
        for route in contract.routes
    ]


def reader_of(route: ContractRoute, free: frozenset[str], enums: Mapping[str, Sequence[str]] | None = None) -> Reader:
    """The reader of one route."""
    whole = path_of(route.unary.template, "answer") if route.unary is not None and route.unary.is_json else None
    frames = route.stream.frames.get("token", ()) if route.stream is not None else ()
    pieces = tuple(piece for frame in frames if (piece := _piece(frame)) is not None)
    return Reader(compile_path(route.path)[0], route.method, whole, pieces, Rules(free, enums or {}))


def kind_of_frame(frame: Frame) -> str:
    """The kind that an event made by a frame has; "" where its template leaves it open."""
    if frame.event:
        return frame.event
    if isinstance(frame.template, dict):
        told = [frame.template[key] for key in KIND_KEYS if isinstance(frame.template.get(key), str)]
        return str(told[0]) if told else ""
    if isinstance(frame.template, str):
        return to_part("", frame.template).kind
    return ""


def _piece(frame: Frame) -> Piece | None:
    steps = path_of(frame.template, "token")
    return None if steps is None else Piece(kind_of_frame(frame), steps)
