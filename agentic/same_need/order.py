"""Who does what to whom, from where to where: two queries of the same words whose roles are exchanged.

A query's order may change freely ("in 2019, the revenue of Acme"), so order alone is no difference. Roles are exchanged
where prepositions of direction lead to different words, where two words change places in otherwise the same sequence,
or where a word stands before the verb in one query and behind it in the other.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from agentic.same_need.alignment import same_word
from agentic.same_need.lexicon import key_of, lexicon

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from agentic.same_need.analysis import Analysis

_DIRECTIONS = {
    "from": "from",
    "to": "to",
    "into": "to",
    "towards": "to",
    "by": "by",
    "than": "than",
    "against": "against",
    "for": "for",
    "about": "about",
}
_MUCH_THE_SAME = ({"for", "to"}, {"for", "about"})
_DO = frozenset({"do", "does", "did"})
_BE = frozenset({"is", "are", "was", "were", "been", "being", "be"})
_ASKING = frozenset({"who", "whom", "which", "what", "whose", "why"})


def order_conflict(first: Analysis, second: Analysis) -> str:
    """What is exchanged, in words; "" for nothing."""
    symmetric = lexicon().symmetric
    if any(token in symmetric for token in (*first.tokens, *second.tokens)):
        return ""
    return (
        _directions(first, second)
        or _exchanged(first, second)
        or _sides_of_verb(first, second)
        or _sides_in_clause(first, second)
        or _sides_of_us(first, second)
    )


def _directions(first: Analysis, second: Analysis) -> str:
    """A preposition of direction leads to a word that has another one in the other query."""
    one, two = _led(first), _led(second)
    for word, direction in one.items():
        other = two.get(word)
        if {direction, other} in _MUCH_THE_SAME:
            continue
        if other is not None and other != direction and {direction, other} <= set(one.values()) | set(two.values()):
            return f"“{word}” is {direction} in one and {other} in the other"
    return ""


def _led(analysis: Analysis) -> dict[str, str]:
    """The key of the word that each preposition of direction leads to."""
    led: dict[str, str] = {}
    for at, token in enumerate(analysis.tokens):
        direction = _DIRECTIONS.get(token)
        if direction is None:
            continue
        rest = analysis.tokens[at + 1 : at + 2]
        if rest:
            led[key_of(rest[0])] = direction
    return led


def _exchanged(first: Analysis, second: Analysis) -> str:
    """Two runs of words stand in each other's place around the same middle, all else is as it was.

    Queries without any function word ("crane load test", "test load crane") have no order to exchange.
    """
    one, two = _sequence(first), _sequence(second)
    if len(one) != len(two) or one == two:
        return ""
    fillers = lexicon().fillers
    if not any(token in fillers for token in first.tokens) or not any(token in fillers for token in second.tokens):
        return ""
    start = next(at for at, (a, b) in enumerate(zip(one, two, strict=True)) if a != b)
    end = len(one) - next(at for at, (a, b) in enumerate(zip(reversed(one), reversed(two), strict=True)) if a != b)
    one, two = one[start:end], two[start:end]
    size = len(one)
    functional = lexicon().filler_keys
    for head in range(1, min(size - 1, 4)):
        for tail in range(1, min(size - head, 4)):
            swapped = one[:head] == two[size - head :] and one[size - tail :] == two[:tail]
            if swapped and one[head : size - tail] == two[tail : size - head]:
                exchanged = (*one[:head], *one[size - tail :])
                if not functional.intersection(exchanged):
                    return f"“{' '.join(one[:head])}” and “{' '.join(two[:tail])}” change places"
    return ""


def _sequence(analysis: Analysis) -> list[str]:
    return [key_of(token) for token in analysis.tokens]


def _sides_of_verb(first: Analysis, second: Analysis) -> str:
    """One query asks what X did, the other who did it to X: "who did X replace", "who replaced X"."""
    for asking, other in ((first, second), (second, first)):
        subject = _subject_after_do(asking)
        if subject is None:
            continue
        name, verbs = subject
        told = set(other.tokens)
        if told & (_DO | _BE) or "by" in told or not told & _ASKING:
            continue
        at_name = next((at for at, token in enumerate(other.tokens) if token == name), -1)
        before_name = [
            token for at, token in enumerate(other.tokens[: max(at_name, 0)]) if other.tokens[at + 1] not in _NOUN_SIGNS
        ]
        if any(same_word(token, verb) for token in before_name for verb in verbs):
            return f"“{name}” does it in one and it is done to it in the other"
    return ""


_NOUN_SIGNS = frozenset({"of", "in", "at"})
"""What stands behind a verb's noun: the collapse of the bridge is what it did."""


def _sides_in_clause(first: Analysis, second: Analysis) -> str:
    """A relative clause has the name before its verb in one, behind it in the other: "that X owns", "that own X"."""
    for asking, other in ((first, second), (second, first)):
        names = {word.text for word in asking.words if word.name}
        related = not _RELATIVE.isdisjoint(asking.tokens)
        for at, token in enumerate(asking.tokens[:-2]):
            if asking.tokens[at + 1] not in names or token in names:
                continue
            if token not in _RELATIVE and (related or not asking.tokens[at + 2].endswith(("s", "ed"))):
                continue  # people Nadia trusts: the clause may lack its relative
            name = asking.tokens[at + 1]
            verb = next((one for one in asking.tokens[at + 2 :] if one not in names), "")
            told = other.tokens
            for place, word in enumerate(told[:-1]):
                if word in _RELATIVE and verb and same_word(told[place + 1], verb) and name in told[place + 2 :]:
                    return f"“{name}” does it in one and it is done to it in the other"
    return ""


def _sides_of_us(first: Analysis, second: Analysis) -> str:
    """Who does it to us, and to whom we do it."""
    for asking, other in ((first, second), (second, first)):
        done_to_us = asking.tokens[:1] and asking.tokens[0] in _ASKING and _follows(asking.tokens, _DIRECTIONS, _US)
        one_way = done_to_us and _WE.isdisjoint(asking.tokens) and _US.isdisjoint(other.tokens)
        if one_way and _follows(other.tokens, _DO | _BE, _WE):
            return "it is done to us in one and by us in the other"
    return ""


def _follows(tokens: Sequence[str], leading: Container[str], led: Container[str]) -> bool:
    return any(one in leading and two in led for one, two in pairwise(tokens))


_US, _WE = frozenset({"us", "me"}), frozenset({"we", "i"})
_RELATIVE = frozenset({"that", "which", "who", "whom"})


def _subject_after_do(analysis: Analysis) -> tuple[str, tuple[str, ...]] | None:
    """The word behind do, does, did, and the words behind it, of which the first that is no name is the verb."""
    tokens = analysis.tokens
    for at, token in enumerate(tokens[:-2]):
        if token in _DO and at > 0:
            names = {word.text for word in analysis.words if word.name}
            rest = [one for one in tokens[at + 2 :] if one not in names and one not in _DIRECTIONS]
            return tokens[at + 1], (*rest[:1], *rest[-1:])
    return None
