"""The words that the comparison of needs knows: data/lexicon.json, read once, indexed for look-up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Look-ups by casefolded word. Phrases are words joined by single spaces.

    fillers: words that ask or polish. generic: nouns so general that one query may lack them. groups: word to the ids
    of its synonym groups; contrasts: word to the ids of the sets of which a query means one. The rest is named as in
    the file.
    """

    fillers: frozenset[str]
    generic: frozenset[str]
    groups: Mapping[str, frozenset[int]]
    contrasts: Mapping[str, frozenset[int]]
    phrases: Mapping[str, str]
    longest_phrase: int
    expansions: Mapping[str, tuple[str, ...]]
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


@cache
def lexicon() -> Lexicon:
    """The shipped lexicon."""
    raw = json.loads(files(__package__).joinpath("data/lexicon.json").read_text(encoding="utf-8"))
    phrases: dict[str, str] = dict(raw["phrases"])
    for table in ("quantifiers", "modality", "units"):
        for name, members in raw[table].items():
            for member in members:
                if " " in member:
                    phrases.setdefault(member, f"{table}:{name}")
    return Lexicon(
        fillers=frozenset(raw["fillers"]),
        generic=frozenset(raw["generic"]),
        groups=_index(raw["synonyms"]),
        contrasts=_index(raw["contrasts"]),
        phrases=phrases,
        longest_phrase=max((phrase.count(" ") + 1 for phrase in phrases), default=1),
        expansions={word: tuple(parts.split()) for word, parts in raw["expansions"].items()},
        negators=frozenset(raw["negators"]),
        quantifiers=_inverted(raw["quantifiers"]),
        modality=_inverted(raw["modality"]),
        tenses=_inverted(raw["tenses"]),
        question_words=_inverted(raw["question_words"]),
        how=raw["how"],
        type_nouns={word: frozenset(kinds) for word, kinds in _multi_inverted(raw["type_nouns"]).items()},
        numbers=raw["numbers"],
        ordinals=raw["ordinals"],
        months=raw["months"],
        units=_inverted(raw["units"]),
        symmetric=frozenset(raw["symmetric"]),
    )


def _index(groups: Iterable[Sequence[str]]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for number, group in enumerate(groups):
        for word in group:
            found.setdefault(word, set()).add(number)
    return {word: frozenset(numbers) for word, numbers in found.items()}


def _inverted(table: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {member: name for name, members in table.items() for member in members}


def _multi_inverted(table: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, members in table.items():
        for member in members:
            found.setdefault(member, []).append(name)
    return found
