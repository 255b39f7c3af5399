"""Words and phrases of many languages as a few dozen concepts: what the directive rules look at.

Reading concepts instead of words keeps the rules small, lets them hold across languages and wordings, and leaves the
subject of a document out of account. The words are in data/lexicon.json.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_LETTER = r"[\w\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff]"
_SPEAKERS = "system|assistant|user|human|developer|operator|admin"
_PLACES = (
    "documents?|untrusted|context|contexts|retrieved|sources?|passages?|data|input|user_input|search_results?|results?"
    "|tool_results?|content|instructions?|prompt|question|turn|summary|note|session|chunk|text|page"
)
_TEMPLATE = (
    r"<\s?[|｜][\w▁ .:/-]{2,40}[|｜]\s?>|\[\s?/?\s?inst\s?\]|<<\s?/?\s?sys\s?>>|<(?:start|end)_of_turn>"
    rf"|</?\s?(?:{_SPEAKERS})\s?>|(?:^|\n)[ ]{{0,3}}\#{{2,4}}\s?(?:system|instruction|response|input)s?\s?:"
    rf"|```(?:{_SPEAKERS})\b|\n\n(?:human|assistant)\s?:"
)
_DELIMITER = (
    rf"</\s?(?:{_PLACES})\b[^<>\n]{{0,80}}>|<<<[^<>\n]{{3,60}}>>>|\[\s?/\s?[\w -]{{2,40}}\](?!\()"
    rf"|\[(?:{_PLACES})[-_:\#][0-9a-f]{{4,40}}\]"
    r"|[-=\#*_]{3,32}+[ ]?(?:begin|end|start|stop)\b[\w ]{1,60}[-=\#*_]{3,}"
    r"|<end of \w{1,20}>|\[\s?end of [\w ]{1,40}\]|\[(?:system|rest-of-document|stop sequence)\]"
)
_ROLE = rf"(?:^|[\n\"'>|*_-])[ \t]{{0,3}}[\[(]?(?:{_SPEAKERS})[\])]?\s?:"
# Runs are bounded and never given back: a token may begin anywhere in a line of dashes or dots, which an unbounded run
# would read again from each of its signs.
_TOKEN = re.compile(
    rf"(?P<template>{_TEMPLATE})|(?P<delimiter>{_DELIMITER})|(?P<role>{_ROLE})"
    rf"|(?P<url>(?:https?|ftp)://[^\s\"'<>)\]]+|www\.[^\s\"'<>)\]]+)"
    rf"|(?P<email>(?<![\w.+-])[\w.+-]{{1,64}}@[\w-]{{1,64}}\.[\w.-]{{1,64}})"
    rf"|(?P<unspaced>[{_UNSPACED}]+)"
    rf"|(?P<word>(?:(?![{_UNSPACED}]){_LETTER})+(?:['’.\-](?:(?![{_UNSPACED}]){_LETTER})+)*)"
    r"|(?P<quote>[\"“”„«»`])"
    r"|(?P<comma>[,:—–(\[{|>*_#]|-(?=\s)|'(?=\w))"
    r"|(?P<stop>[.!?;。！？।…]{1,32}+(?=[\s\"'”’»)\]*_]|$)|\n[ \t]*\n\s*|\n[ \t]*(?:[-*+•>|#]|\d{1,2}[.)]))"
    r"|(?P<line>\n)"
)
_ACCENTS = re.compile("[\u0300-\u036f]")
_TOOL_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+){1,5}")
# an address with a place for something to be filled in: ?d={summary}, /c?q=<question>, ?t=[token]
_CARRIES_DATA = re.compile(r"[?&#/][\w.-]{0,40}=?(?:\{|%7b|<|\[|\$\{|%s)|=\W{0,2}$")
_LONGEST_PHRASE = 7
_MOST_REMEMBERED = 50_000


class Token(NamedTuple):
    """A word, phrase or sign: its concepts, its place in the normalised text, and what kind of token it is."""

    concepts: tuple[str, ...]
    start: int
    end: int
    kind: str


def normalise(text: str) -> str:
    """Casefolded, compatibility forms and accents of letters resolved: the form in which words are compared."""
    if text.isascii():
        return text.casefold()
    spread = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", spread).casefold().replace("’", "'")


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Concepts by word, by stem (an entry that ends in *), by phrase and by stretch of unspaced script."""

    words: Mapping[str, tuple[str, ...]]
    stems: Mapping[str, tuple[str, ...]]
    phrases: Mapping[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]]
    unspaced: Mapping[str, tuple[str, ...]]
    vocabulary: frozenset[str]
    _seen: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def tokens(self, text: str) -> list[Token]:
        """Tokens of normalised `text` in order; words without a concept have none, but count as distance."""
        raw = [(match.lastgroup or "", match.start(), match.end()) for match in _TOKEN.finditer(text)]
        found: list[Token] = []
        at = 0
        while at < len(raw):
            kind, start, end = raw[at]
            if kind == "word":
                word = text[start:end]
                phrases = self.phrases.get(word)
                longest = self._phrase(text, raw, at, phrases) if phrases else None
                if longest is not None:
                    length, concepts = longest
                    found.append(Token(concepts, start, raw[at + length - 1][2], "word"))
                    at += length
                    continue
                found.append(Token(self.concepts_of(word), start, end, "word"))
            elif kind == "unspaced":
                found.extend(self._unspaced(text, start, end))
            else:
                concepts = {"url": ("URL",), "email": ("EMAIL",)}.get(kind, ())
                if kind == "url" and _CARRIES_DATA.search(text, start, end + 2):
                    concepts = ("URL", "URLDATA")
                found.append(Token(concepts, start, end, kind))
            at += 1
        return found

    def concepts_of(self, word: str) -> tuple[str, ...]:
        """Concepts of one normalised word."""
        known = self._seen.get(word)
        if known is None:
            known = self._look_up(word)
            if len(self._seen) < _MOST_REMEMBERED and len(word) < 40:
                self._seen[word] = known
        return known

    def _look_up(self, word: str) -> tuple[str, ...]:
        known = self.words.get(word)
        if known is not None:
            return known
        for length in range(min(len(word), 14), 2, -1):
            stem = self.stems.get(word[:length])
            if stem is not None:
                return stem
        if "_" in word and _TOOL_NAME.fullmatch(word):
            return ("TOOLNAME",)
        for mark in "-'.":
            if mark in word:
                parts = [concept for part in word.split(mark) for concept in self.words.get(part, ())]
                return tuple(dict.fromkeys(parts))
        return ()

    @staticmethod
    def _phrase(
        text: str,
        raw: list[tuple[str, int, int]],
        at: int,
        phrases: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...],
    ) -> tuple[int, tuple[str, ...]] | None:
        for rest, concepts in phrases:
            if at + len(rest) >= len(raw):
                continue
            place = at
            for expected in rest:
                place += 1
                while place < len(raw) and raw[place][0] == "line":
                    place += 1
                if place >= len(raw) or text[raw[place][1] : raw[place][2]] != expected:
                    break
            else:
                return place - at + 1, concepts
        return None

    def _unspaced(self, text: str, start: int, end: int) -> Iterator[Token]:
        at = start
        while at < end:
            for length in range(min(_LONGEST_PHRASE + 1, end - at), 0, -1):
                concepts = self.unspaced.get(text[at : at + length])
                if concepts:
                    yield Token(concepts, at, at + length, "word")
                    at += length
                    break
            else:
                at += 1


def load_lexicon() -> Lexicon:
    """Read the lexicon that is shipped with the package."""
    concepts: dict[str, list[str]] = json.loads(
        files("standard.sandbox").joinpath("data", "lexicon.json").read_text("utf-8")
    )["concepts"]
    words: dict[str, list[str]] = {}
    stems: dict[str, list[str]] = {}
    unspaced: dict[str, list[str]] = {}
    phrases: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for concept, entries in concepts.items():
        for entry in entries:
            plain = normalise(entry.removesuffix("*"))
            if entry.endswith("*"):
                stems.setdefault(plain, []).append(concept)
            elif re.fullmatch(f"[{_UNSPACED}]+", plain):
                unspaced.setdefault(plain, []).append(concept)
            else:
                parts = [match[0] for match in _TOKEN.finditer(plain)]
                if len(parts) == 1:
                    words.setdefault(plain, []).append(concept)
                else:
                    phrases.setdefault(parts[0], {}).setdefault(tuple(parts[1:]), []).append(concept)
    return Lexicon(
        words={word: tuple(dict.fromkeys(found)) for word, found in words.items()},
        stems={stem: tuple(dict.fromkeys(found)) for stem, found in stems.items()},
        phrases={
            first: tuple(
                (rest, tuple(dict.fromkeys(found)))
                for rest, found in sorted(rests.items(), key=lambda item: -len(item[0]))
            )
            for first, rests in phrases.items()
        },
        unspaced={sign: tuple(dict.fromkeys(found)) for sign, found in unspaced.items()},
        vocabulary=frozenset(
            part
            for word in [*words, *(p for f, rs in phrases.items() for r in rs for p in (f, *r))]
            if (part := word) and part.isascii() and part.isalpha() and (len(part) > 1 or part in "ai")
        ),
    )
