"""What the scripted model can be told to do."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.support.model_server.record import Recorded


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model. Arguments are a mapping, or raw text to be malformed at will."""

    name: str
    arguments: Mapping[str, object] | str = field(default_factory=dict)

    @property
    def raw_arguments(self) -> str:
        """The arguments as the API sends them: JSON text."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion, sent as a stream or at once, as the client asks.

    `pieces` fixes the deltas of a stream; else the text is split after each word. Delays in seconds: `delay` before the
    response headers, `first_token_delay` after them, `token_delay` between deltas. `cut_after` closes the connection
    without ceremony after that many deltas of content (a response that is not streamed is cut within its body);
    `stall_after` goes silent there instead, with the connection open, sending a comment line each `ping` seconds if
    that is set. `usage` False leaves usage out even where asked; a mapping replaces what the server counts. `reasoning`
    is sent as reasoning_content before the text. `finish_reason` None tells it from the rest; "" leaves it out.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    pieces: tuple[str, ...] | None = None
    delay: float = 0.0
    first_token_delay: float = 0.0
    token_delay: float = 0.0
    cut_after: int | None = None
    stall_after: int | None = None
    ping: float = 0.0
    usage: bool | Mapping[str, object] = True
    refusal: str = ""
    reasoning: str = ""
    empty_choices: bool = False
    done_line: bool = True

    def deltas(self) -> tuple[str, ...]:
        """The pieces of text a stream sends."""
        if self.pieces is not None:
            return self.pieces
        return tuple(re.findall(r"\s*\S+\s*?(?=\s|$)|\s+$", self.text))

    def whole(self) -> str:
        """The whole text."""
        return self.text if self.pieces is None else "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP error. The default body is OpenAI's error object; `retry_after` (seconds) sets the header."""

    status: int = 500
    message: str = "The server had an error while processing your request."
    code: str | None = None
    param: str | None = None
    retry_after: float | str | None = None
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Raw:
    """Any bytes as the body: HTML where JSON is due, broken events. `cut` closes the connection short of the length."""

    body: bytes = b"<!doctype html><title>502 Bad Gateway</title><h1>nginx</h1>"
    content_type: str = "text/html"
    status: int = 200
    delay: float = 0.0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    """Never answer. With `headers` the response begins (200, event stream), and nothing follows."""

    headers: bool = False


Behaviour: TypeAlias = Reply | Failure | Raw | Hang
Script: TypeAlias = Sequence[Behaviour] | Callable[[Recorded], Behaviour | Awaitable[Behaviour]]


def always(behaviour: Behaviour) -> Script:
    """The same behaviour for every request."""
    return lambda _: behaviour


def failing(first: int, behaviour: Behaviour, then: Behaviour) -> Script:
    """`behaviour` for the first requests, `then` for all later ones."""
    return lambda request: behaviour if request.number < first else then


def json_reply(value: object) -> Reply:
    """A reply whose text is this value as JSON."""
    return Reply(json.dumps(value))


def repeating_itself(text: str, times: int = 1000) -> Reply:
    """A model stuck in a loop until the output limit cuts it."""
    return Reply(pieces=(text,) * times, finish_reason="length")


def tool_caller(name: str, arguments: Callable[[int], Mapping[str, object] | str]) -> Script:
    """A model that calls one tool for ever, with arguments made from the number of the request."""
    return lambda request: Reply(calls=(Call(name, arguments(request.number)),))
