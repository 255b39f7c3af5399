"""Which passages of a search may be shown, and what the injection scan has to say of them: before a prompt is planned.

Verdicts were stored at ingest; here they are read, and the borders are looked at where two passages meet. A passage
whose border cannot be looked at is left out, alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from standard.domain.passage import RetrievedPassage, ScanFinding
from standard.domain.text import UntrustedText
from standard.sandbox.canonicalise import canonicalise
from standard.sandbox.encodings import NestedTooDeep, RunTooLong, find_encoded
from standard.sandbox.hidden import unseen_text
from standard.sandbox.policy import admit
from standard.sandbox.scan import cut_unseen, shipped_scanner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.domain.passage import Passage, SearchResult


_ROUNDS = 4  # of blanking: what is uncovered may hide something again


@dataclass(frozen=True, slots=True)
class Screened:
    """Passages that may be shown, in their order, and findings on these and on those that were withheld."""

    passages: tuple[RetrievedPassage, ...]
    findings: tuple[ScanFinding, ...]


def screen(found: SearchResult) -> Screened:
    """Screen what a search brought; its `withheld` are among the findings."""
    screened = screen_passages(found.passages)
    return replace(screened, findings=(*screened.findings, *found.withheld))


def extractable(found: Sequence[RetrievedPassage]) -> tuple[RetrievedPassage, ...]:
    """Passages whose sentences may be shown as they are: what a neutralised one hides is blanked out, place by place.

    One in which that cannot be done without moving its text is left out; a model's prompt holds it in another form.
    """
    kept: list[RetrievedPassage] = []
    for item in found:
        if (text := quotable(item.passage)) is None:
            continue
        same = text == item.passage.text.raw
        kept.append(item if same else replace(item, passage=replace(item.passage, text=UntrustedText(text))))
    return tuple(kept)


def quotable(passage: Passage) -> str | None:
    """The passage's text with every place where it was, without what a neutralised one hides; see `extractable`."""
    return passage.text.raw if passage.verdict != "neutralise" else _blanked(passage.text.raw)


def shown_text(passage: Passage) -> str:
    """The text of which pieces may be shown: cut out of the raw one, a piece of a hidden part is hidden no more."""
    text = quotable(passage)
    return cut_unseen(passage.text.raw) if text is None else text


def _blanked(text: str) -> str | None:
    """The text with line feeds in the place of what a reader does not see or cannot read: no sentence crosses that."""
    if canonicalise(text) != text:
        return None
    for _ in range(_ROUNDS):
        try:
            spans = [(item.start, item.end) for item in find_encoded(text)]
        except (NestedTooDeep, RunTooLong):
            return None
        spans += [(item.start, item.end) for item in unseen_text(text)]
        if not spans:
            return text
        for start, end in spans:
            text = text[:start] + "\n" * (end - start) + text[end:]
    return None


def presentable(found: Sequence[RetrievedPassage]) -> tuple[RetrievedPassage, ...]:
    """Passages as a search hands them out to whoever asked, screened: of a neutralised one what a reader would see.

    What it hid is cut out of text, title and heading, with a mark in its place; one of which nothing can be shown is
    left out.
    """
    shown = map(_cut, screen_passages(found).passages)
    return tuple(item for item in shown if item.passage.text.raw)


def _cut(item: RetrievedPassage) -> RetrievedPassage:
    passage = item.passage
    if passage.verdict != "neutralise":
        return item
    return replace(
        item,
        passage=replace(
            passage,
            text=UntrustedText(cut_unseen(passage.text.raw)),
            title=UntrustedText(cut_unseen(passage.title.raw)),
            section_heading=cut_unseen(passage.section_heading),
        ),
    )


def screen_passages(found: Sequence[RetrievedPassage]) -> Screened:
    """Screen passages that will stand in a prompt together, in an order near to this one."""
    admitted = admit([item.passage for item in found], shipped_scanner())
    verdicts = {passage.passage_id: passage for passage in admitted.passages}
    kept: list[RetrievedPassage] = []
    for item in found:
        passage = verdicts.get(item.passage.passage_id)
        if passage is not None:
            kept.append(item if passage is item.passage else replace(item, passage=passage))
    return Screened(tuple(kept), admitted.findings)
