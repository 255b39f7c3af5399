"""Splits a question into the lookups that it joins, by its wording alone.

Comparisons ("is X or Y older?", "how do X and Y differ?") ask the same of several things; conjunctions ask several
things. Each part is a query of its own. What cannot be split safely stays whole.
"""

from __future__ import annotations

import re

_AUX = r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)"
_WH = r"(?:what|which|who|whom|whose|when|where|why|how)"

_BOTH = re.compile(
    r"\bboth\s+(?P<a>.+?)\s+and\s+(?P<b>.+?)(?=[,?.;]|\s+(?:in|on|at|from|by|have|has|had|were|was|are|is)\b|$)",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    r"\b(?:between|compare|comparing)\s+(?P<a>.+?)\s+(?:and|with|to|versus|vs\.?)\s+(?P<b>.+?)(?=[,?.;]|$)",
    re.IGNORECASE,
)
# Every pattern is tried at every place of the text, so none may look far ahead of it in vain: a run is read from its
# beginning alone, or is bounded, and what is read is never given back.
_VERSUS = re.compile(
    r"(?<![\w’'\- ])(?P<a>[\w’'\- ]+?)\s+(?:versus|vs\.?|compared (?:to|with))\s+(?P<b>[\w’'\- ]+)", re.IGNORECASE
)
_OR = re.compile(
    r"(?:^|[,:]\s*|\b(?:older|younger|first|earlier|later|larger|bigger|smaller|longer|shorter|higher|lower|more|less|"
    r"better|cheaper|faster),?\s+)(?>(?P<a>[^,:?]+?),?\s+or\s+)(?P<b>[^,?]++)\??$",
    re.IGNORECASE,
)
_AND_NAMES = re.compile(
    r"\b(?P<a>[A-Z][\w’'\-.]{0,60}+(?:\s+(?:(?:of|the|and the|de|la|von)\s+)?[A-Z0-9][\w’'\-.]{0,60}+){0,8})\s+and\s+"
    r"(?P<b>(?:the\s+)?[A-Z][\w’'\-.]*+(?:\s+(?:(?:of|the|de|la|von)\s+)?[A-Z0-9][\w’'\-.]*+){0,8})"
)
_CLAUSE = re.compile(rf"[,;]?\s+(?:and|but|as well as)\s+(?=(?:{_WH}|{_AUX})\b)|[?;]\s+(?=\S)", re.IGNORECASE)

_REFERS = re.compile(r"\b(?:it|its|they|their|them|he|his|him|she|her|that|this|these|those)\b", re.IGNORECASE)

MAX_PARTS = 4
MAX_READ = 1_000
"""Code points of a question that are split; of a longer one the end: people end with the question."""


def split_question(question: str) -> tuple[str, ...]:
    """The queries that a question joins, at most four; empty if it asks one thing only."""
    text = _end_of(" ".join(question.split()))
    clauses = [part.strip(" ,;") for part in _CLAUSE.split(text) if part and len(part.split()) >= 3]
    if len(clauses) > 1:
        return tuple(_carry_subject(clauses))[:MAX_PARTS]
    for pattern in (_BOTH, _BETWEEN, _OR, _VERSUS, _AND_NAMES):
        match = pattern.search(text)
        if match is not None:
            first, second = match.group("a").strip(" ,"), match.group("b").strip(" ,?")
            if first and second and first.casefold() != second.casefold() and max(map(len, (first, second))) <= 120:
                return _each(text, match, first, second)
    return ()


def _end_of(text: str) -> str:
    """The last whole words of a text within MAX_READ."""
    if len(text) <= MAX_READ:
        return text
    end = text[-MAX_READ:]
    return end.partition(" ")[2] or end


def _each(text: str, match: re.Match[str], first: str, second: str) -> tuple[str, ...]:
    """The question asked of each of two things: the words around the pair with one of them."""
    before, after = text[: match.start("a")], text[match.end("b") :]
    around = re.sub(r"\b(?:both|between|compare|comparing)\s*$", "", before.strip(), flags=re.IGNORECASE)
    frame = f"{around} {{}} {after}"
    parts = (" ".join(frame.replace("{}", part).split()).strip(" ,?") for part in (first, second))
    return tuple(dict.fromkeys(parts))


def _carry_subject(clauses: list[str]) -> list[str]:
    """Give clauses that only say "it", "they", "he" … the names of the first clause to search with."""
    names = re.findall(r"\b[A-Z][\w’'\-]+(?:\s+[A-Z0-9][\w’'\-]+)*", clauses[0][1:])
    subject = " ".join(dict.fromkeys(names))
    later = (f"{clause} {subject}" if subject and _REFERS.search(clause) else clause for clause in clauses[1:])
    return [clauses[0], *later]
