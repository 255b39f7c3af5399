"""Reads a rendered prompt back into its sections, by the marker alone: a second view of standard.sandbox.render."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TAG = re.compile(r'<(?P<end>/?)(?P<kind>\w+) id="(?P<tag>\w+)" key="(?P<key>[0-9a-f]+)">')


@dataclass(frozen=True, slots=True)
class Section:
    kind: str
    tag: str
    content: str


def marker_of(prompt: str) -> str:
    """The key of the first section; fails where there is none."""
    match = _TAG.search(prompt)
    assert match is not None, "no section in the prompt"
    return match["key"]


def sections_of(prompt: str, key: str | None = None) -> list[Section]:
    """The sections that the marker delimits. Fails where tags do not pair up, or content holds the marker."""
    key = key or marker_of(prompt)
    sections: list[Section] = []
    opened: re.Match[str] | None = None
    tags = [match for match in _TAG.finditer(prompt) if match["key"] == key]
    for match in tags:
        if opened is None:
            assert not match["end"], "a section closes that was not open"
            opened = match
            continue
        assert match["end"], "a section opens within another"
        assert (match["kind"], match["tag"]) == (opened["kind"], opened["tag"])
        sections.append(Section(match["kind"], match["tag"], prompt[opened.end() : match.start()].strip("\n")))
        opened = None
    assert opened is None, "a section stays open"
    assert not any(key in section.content.casefold() for section in sections), "content holds the marker"
    return sections
