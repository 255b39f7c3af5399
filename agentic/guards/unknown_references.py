"""Prevents: chasing a thing that does not exist.

A model that guesses a name, a number or a quoted title searches for it, is handed the nearest passages, and takes them
for an answer about it. References that neither the question, the history, the user's replies nor any retrieved text
contains are looked up in the collection before the guards run; a miss is refused and told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentic.coverage import word_set
from agentic.guards.verdict import ALLOW, Refuse, Verdict

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from agentic.actions import Proposal
    from agentic.state import RunState

NAME = "unknown_references"

MAX_LOOKUPS = 8
"""References of one proposal that are looked up; further ones pass."""

_QUOTED = re.compile(r"[\"“„«]([^\"“”„«»]{2,80})[\"”“»]")
_NUMBER = re.compile(r"(?<![\w.,])(?<!\w[-/_])\d[\d.,]*(?:[-/]\d+)*(?![\w])")
_CODE = re.compile(
    r"\b(?=\w*\d)(?=\w*[A-Za-z])[A-Za-z0-9]+(?:[-_/][A-Za-z0-9]+)*\b|\b[A-Z]{2,}(?:-\w+)+\b"
    r"|\b[A-Za-z]+[-_/]\d\w*(?:[-_/]\w+)*\b"
)
_NAME = re.compile(r"\b[A-ZÀ-ÖØ-ÞĀ-Ž][\w’'\-]*(?:\s+(?:(?:of|the|de|la|von|van|der|&)\s+)?[A-ZÀ-ÖØ-ÞĀ-Ž][\w’'\-]*)*")
_WORD = re.compile(r"\w+")

# Words that start a question or are capitalised without naming anything.
_NO_NAME = word_set("""
    a an the what which who whom whose when where why how is are was were do does did can could should would will may
    must has have had if in on at for of to by with from and or not list compare find name give tell show explain
    describe summarize define besides i we you he she it they our my your their this that these those there all any
    each every
    january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday
""")


def references(query: str) -> tuple[str, ...]:
    """Proper nouns, numbers, codes and quoted names of a query, in order, without repeats."""
    found: dict[str, None] = {}
    for match in _QUOTED.finditer(query):
        found.setdefault(match.group(1).strip())
    for pattern in (_NUMBER, _CODE):
        for match in pattern.finditer(query):
            text = match.group().strip(".,")
            if len(text) > 1:  # a single digit is a count, not a reference
                found.setdefault(text)
    for match in _NAME.finditer(query):
        words = match.group().split()
        while words and words[0].casefold() in _NO_NAME:
            words = words[1:]
        if words and not (match.start() == 0 and len(words) == 1 and words[0] == match.group()):
            found.setdefault(" ".join(words))
    return tuple(found)


def known_text(state: RunState) -> str:
    """All that may have given the controller its references, casefolded: question, history, replies, passages."""
    parts: list[str] = [state.question.raw]
    parts += [turn.text.raw for turn in state.history]
    parts += [reply.answer.raw for reply in state.replies]
    for held in state.evidence.held:
        parts += [held.passage.title.raw, held.passage.section_heading, held.text.raw]
    return "\n".join(parts).casefold()


def unexplained(query: str, known: str) -> tuple[str, ...]:
    """References of the query of which not all words stand in the known text (casefolded)."""
    words = frozenset(_WORD.findall(known))
    return tuple(
        reference
        for reference in references(query)
        if not all(_explained(word, words) for word in _WORD.findall(reference.casefold()))
    )[:MAX_LOOKUPS]


def _explained(word: str, words: frozenset[str]) -> bool:
    """A word is explained by itself or by its plural or possessive."""
    if word in words or word in _NO_NAME or len(word) == 1:
        return True
    return any(form in words for form in (word + "s", word.removesuffix("s"), word.removesuffix("es")))


def spellings(reference: str) -> tuple[str, ...]:
    """How a text search may hold a reference: "2408" also as in "P-2408", where it is read as a negative number."""
    return (reference, f"-{reference}") if reference.isdecimal() else (reference,)


def missing(references: Sequence[str], mentioned: Container[str]) -> tuple[str, ...]:
    """The references that the collection mentions in none of their spellings."""
    return tuple(name for name in references if not any(spelling in mentioned for spelling in spellings(name)))


def check(state: RunState, proposal: Proposal) -> Verdict:
    """Refuse a query that names what was looked up and not found."""
    if not state.settings.guards.check_references or not proposal.unknown:
        return ALLOW
    names = ", ".join(f"“{name}”" for name in proposal.unknown[:3])
    return Refuse(f"nothing in the question, the sources or the collection mentions {names}")
