"""The words that the comparison of needs knows: data/lexicon.json, read once, indexed for look-up."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from standard.words import stem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Look-ups by casefolded word or, where named so, by key (see `key_of`).

    `phrases` maps words joined by blanks to what stands in their place; `expansions` a word likewise, `acronyms` a word
    in capitals. A place of the
    form `@type` says that a query asks for that type of thing. `fillers` ask or polish and add no need; `generic` keys
    are nouns so general that one query may lack them. `groups` maps a key to the ids of its synonym groups, `contrasts`
    to the ids of the sets of which a query means one, `contrast_words` the same by word.
    """

    fillers: frozenset[str]
    filler_keys: frozenset[str]
    generic: frozenset[str]
    groups: Mapping[str, frozenset[int]]
    contrasts: Mapping[str, frozenset[int]]
    contrast_words: Mapping[str, frozenset[int]]
    phrases: Mapping[str, tuple[str, ...]]
    first_words: frozenset[str]
    expansions: Mapping[str, tuple[str, ...]]
    acronyms: Mapping[str, tuple[str, ...]]
    irregular: Mapping[str, str]
    negators: frozenset[str]
    quantifiers: Mapping[str, str]
    modality: Mapping[str, str]
    tenses: Mapping[str, str]
    question_words: Mapping[str, str]
    how: Mapping[str, str]
    type_nouns: Mapping[str, frozenset[str]]
    numbers: Mapping[str, float]
    ordinals: Mapping[str, int]
    months: Mapping[str, int]
    units: Mapping[str, str]
    symmetric: frozenset[str]
    vocabulary: Mapping[str, int]

    def rank(self, word: str) -> int:
        """How common a casefolded word is: its place in the vocabulary, from 0; far beyond it if unknown."""
        return self.vocabulary.get(word, UNKNOWN_RANK)


UNKNOWN_RANK = 1_000_000
LONGEST_PHRASE = 5

_SPELLINGS = (
    (re.compile(r"is(e|ed|es|ing|ation|ations)$"), r"iz\1"),
    (re.compile(r"yse(d|s)?$"), r"yze\1"),
    (re.compile(r"(?<=[a-z]{2})our(s|ed|ing|al)?$"), r"or\1"),
    (re.compile(r"tre(s)?$"), r"ter\1"),
    (re.compile(r"ogue(s)?$"), r"og\1"),
    (re.compile(r"^programme"), "program"),
    (re.compile(r"^licen[cs]e"), "license"),
    (re.compile(r"^aluminium$"), "aluminum"),
    (re.compile(r"^grey$"), "gray"),
    (re.compile(r"^cheque"), "check"),
    (re.compile(r"^tyre"), "tire"),
)


@cache
def lexicon() -> Lexicon:
    """The shipped lexicon."""
    raw = json.loads(_read("lexicon.json"))
    irregular = raw["irregular"]
    phrases = {phrase: tuple(place.split()) for phrase, place in raw["phrases"].items()}
    for table in ("quantifiers", "modality", "units"):
        for name, members in raw[table].items():
            for member in members:
                if " " in member:
                    phrases.setdefault(member, (f"#{table}:{name}",))

    def key(word: str) -> str:
        return _key(word, irregular)

    return Lexicon(
        fillers=frozenset(raw["fillers"]),
        filler_keys=frozenset(map(key, raw["fillers"])),
        generic=frozenset(map(key, raw["generic"])),
        groups=_index(raw["synonyms"], key),
        contrasts=_index(raw["contrasts"], key),
        contrast_words=_index(raw["contrasts"], str),
        phrases=phrases,
        first_words=frozenset(phrase.split()[0] for phrase in phrases),
        expansions={word: tuple(parts.split()) for word, parts in raw["expansions"].items()},
        acronyms={word: tuple(parts.split()) for word, parts in raw["acronyms"].items()},
        irregular=irregular,
        negators=frozenset(raw["negators"]),
        quantifiers=_inverted(raw["quantifiers"]),
        modality=_inverted(raw["modality"]),
        tenses=_inverted(raw["tenses"]),
        question_words=_inverted(raw["question_words"]),
        how=raw["how"],
        type_nouns=_types(raw["type_nouns"], key),
        numbers=raw["numbers"],
        ordinals=raw["ordinals"],
        months=raw["months"],
        units=_inverted(raw["units"]),
        symmetric=frozenset(raw["symmetric"]),
        vocabulary={word: rank for rank, word in enumerate(_read("vocabulary.txt").split())},
    )


def _read(name: str) -> str:
    return files("agentic.same_need").joinpath(f"data/{name}").read_text(encoding="utf-8")


@lru_cache(maxsize=16384)
def key_of(word: str) -> str:
    """What a casefolded word is compared by: base form of irregular words, one spelling, stem."""
    return _key(word, lexicon().irregular)


def _key(word: str, irregular: Mapping[str, str]) -> str:
    if word.startswith("@"):
        return word
    word = irregular.get(word) or _base(word, irregular)
    for pattern, place in _SPELLINGS:
        word, changed = pattern.subn(place, word)
        if changed:
            break
    return stem(irregular.get(word, word))


def _base(word: str, irregular: Mapping[str, str]) -> str:
    """Base form of an irregular word's plural, and of short verbs whose ending is no ending: sued, used."""
    if word.endswith("ies") and (base := irregular.get(f"{word[:-3]}y")):
        return base
    if word.endswith("s") and (base := irregular.get(word[:-1])):
        return base
    return word[:-1] if word.endswith("ed") and len(word) <= 5 else word


def _index(groups: Iterable[Sequence[str]], key: Callable[[str], str]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for number, group in enumerate(groups):
        for word in group:
            for form in _forms(word):
                found.setdefault(key(form), set()).add(number)
    return {word: frozenset(numbers) for word, numbers in found.items()}


def _forms(word: str) -> tuple[str, ...]:
    """A word and its regular inflections, whose stems may differ: animal, animals."""
    bare = word.removesuffix("e")
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return word, plural, f"{bare}ed", f"{bare}ing"


def _inverted(table: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {member: name for name, members in table.items() for member in members}


def _types(table: Mapping[str, Sequence[str]], key: Callable[[str], str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name, members in table.items():
        for member in members:
            found.setdefault(key(member), set()).add(name)
    return {word: frozenset(names) for word, names in found.items()}
