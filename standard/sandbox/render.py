"""Prevents: text of documents, tools and users that leaves its place in a prompt and is read as something else.

Every piece of untrusted text stands in a section of its own, between two tags that carry the marker of the request: a
key of 128 random bits, drawn when all content is at hand and absent from it. So no content can close a section or open
one. Titles, addresses and headings stand inside the section too, on one line each and capped.

    <passage id="S1" key="6f0c…">
    title: Weather policy
    source: wiki/weather
    text:
    Sailings stop at 40 knots.
    </passage id="S1" key="6f0c…">

The way to use it: `with_marker(lambda marker: [..messages rendered with this marker..])`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from standard.sandbox.canonicalise import canonicalise
from standard.sandbox.neutralise import neutralise
from standard.sandbox.prompt import PromptText
from standard.sandbox.scan import cut_unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from standard.domain.passage import Passage
    from standard.domain.question import Turn
    from standard.domain.text import UntrustedText

T = TypeVar("T")

MARKER_BYTES = 16
HEADER_LIMIT = 200
"""Code points of a header field; what is longer is cut and ends in an ellipsis."""
_DRAWS = 64
_MOST_REMEMBERED = 8_000  # code points of a text that is remembered


class MarkerCollision(Exception):
    """The content holds the marker; draw another. It never leaves `with_marker`."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The key of one request's sections. Get it from `with_marker`."""

    key: str

    def check_absent(self, contents: Iterable[str]) -> None:
        """Raise MarkerCollision where the contents, or any of them joined to the next, hold the key."""
        if self.key in "".join(contents).casefold():
            raise MarkerCollision


@dataclass(frozen=True, slots=True)
class TaggedPassage:
    """A passage under the tag (S1, S2 …) by which one run cites it."""

    tag: str
    passage: Passage


def tag_passages(passages: Sequence[Passage], first: int = 1) -> tuple[TaggedPassage, ...]:
    """Tag passages S<first>, S<first + 1> … in their order."""
    return tuple(TaggedPassage(f"S{number}", passage) for number, passage in enumerate(passages, first))


def with_marker(build: Callable[[Marker], T], draw: Callable[[], str] | None = None) -> T:
    """Build a prompt with a fresh marker; again with another where the content turns out to hold it.

    `build` gets a marker and renders everything that the request holds with it. `draw` makes a key (tests).
    """
    draw = draw or (lambda: secrets.token_hex(MARKER_BYTES))
    for _ in range(_DRAWS):
        try:
            return build(Marker(draw()))
        except MarkerCollision:
            continue
    raise RuntimeError(f"{_DRAWS} markers in a row stand in the content: the source of randomness is broken")


def render_passages(passages: Sequence[TaggedPassage], marker: Marker) -> PromptText:
    """One section a passage, in the given order; nothing for none.

    What a neutralised passage hides is cut out. A quarantined one gets no section: it should have been left out before.
    """
    sections = [
        _Section(
            "passage",
            item.tag,
            (
                ("title", _line(item.passage.title.raw)),
                ("source", _line(item.passage.uri)),
                ("section", _line(item.passage.section_heading)),
            ),
            _passage_text(item.passage),
        )
        for item in passages
        if item.passage.verdict != "quarantine"
    ]
    return _render(sections, marker)


def render_question(question: UntrustedText, marker: Marker) -> PromptText:
    """The question of the user."""
    return _render([_Section("question", "Q", (), visible_text(question))], marker)


def render_history(turns: Sequence[Turn], marker: Marker) -> PromptText:
    """Earlier turns of the conversation, oldest first: who spoke is told by the section's header."""
    sections = [
        _Section("turn", f"T{number}", (("speaker", turn.role),), visible_text(turn.text))
        for number, turn in enumerate(turns, 1)
    ]
    return _render(sections, marker)


def render_notes(notes: Mapping[str, UntrustedText], marker: Marker) -> PromptText:
    """Short texts of models or users under tags of ours (K1, K2 …): facts held for known, gaps, sub-questions."""
    return _render([_Section("note", tag, (), visible_text(text)) for tag, text in notes.items()], marker)


def visible_text(text: UntrustedText) -> str:
    """Untrusted text as it stands in a prompt: canonical, neutralised. For measuring; a prompt takes rendered text.

    Remembered for a while: a plan measures what the prompt then holds, and passages come again.
    """
    raw = text.raw
    return _remembered(raw) if len(raw) <= _MOST_REMEMBERED else neutralise(canonicalise(raw))


@lru_cache(maxsize=2048)
def _remembered(raw: str) -> str:
    return neutralise(canonicalise(raw))


def _passage_text(passage: Passage) -> str:
    return neutralise(cut_unseen(passage.text.raw)) if passage.verdict == "neutralise" else visible_text(passage.text)


@dataclass(frozen=True, slots=True)
class _Section:
    kind: str
    tag: str
    headers: tuple[tuple[str, str], ...]
    body: str


def _line(raw: str) -> str:
    """A header field: one line, capped. Longer input is cut before it is worked on."""
    line = " ".join(neutralise(canonicalise(raw[: 4 * HEADER_LIMIT])).split())
    return line if len(line) <= HEADER_LIMIT else line[: HEADER_LIMIT - 1] + "…"


def _render(sections: Sequence[_Section], marker: Marker) -> PromptText:
    marker.check_absent(
        part for section in sections for part in (*(value for _, value in section.headers), section.body)
    )
    return PromptText("\n".join(_section_text(section, marker) for section in sections))


def _section_text(section: _Section, marker: Marker) -> str:
    attributes = f'{section.kind} id="{section.tag}" key="{marker.key}"'
    headers = "".join(f"{name}: {value}\n" for name, value in section.headers if value)
    label = "text:\n" if section.headers else ""
    return f"<{attributes}>\n{headers}{label}{section.body}\n</{attributes}>"
