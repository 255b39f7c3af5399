"""Who does what to whom, from where to where: two queries of the same words whose roles are exchanged.

A query's order may change freely ("in 2019, the revenue of Acme"), so order alone is no difference. Roles are exchanged
where prepositions of direction lead to different words, where two words change places in otherwise the same sequence,
or where a word stands before the verb in one query and behind it in the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentic.same_need.alignment import same_word
from agentic.same_need.lexicon import key_of, lexicon

if TYPE_CHECKING:
    from agentic.same_need.analysis import Analysis

_DIRECTIONS = {
    "from": "from",
    "to": "to",
    "into": "to",
    "towards": "to",
    "by": "by",
    "than": "than",
    "against": "against",
    "about": "about",
}
_DO = frozenset({"do", "does", "did"})
_BE = frozenset({"is", "are", "was", "were", "been", "being", "be"})
_ASKING = frozenset({"who", "whom", "which", "what", "whose", "why"})


def order_conflict(first: Analysis, second: Analysis) -> str:
    """What is exchanged, in words; "" for nothing."""
    symmetric = lexicon().symmetric
    if any(token in symmetric for token in (*first.tokens, *second.tokens)):
        return ""
    return _directions(first, second) or _exchanged(first, second) or _sides_of_verb(first, second)


def _directions(first: Analysis, second: Analysis) -> str:
    """A preposition of direction leads to a word that has another one in the other query."""
    one, two = _led(first), _led(second)
    for word, direction in one.items():
        other = two.get(word)
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
        before_name = other.tokens[: max(at_name, 0)]
        if any(same_word(token, verb) for token in before_name for verb in verbs):
            return f"“{name}” does it in one and it is done to it in the other"
    return ""


def _subject_after_do(analysis: Analysis) -> tuple[str, tuple[str, ...]] | None:
    """The word behind do, does, did, and the words behind it, of which the first that is no name is the verb."""
    tokens = analysis.tokens
    for at, token in enumerate(tokens[:-2]):
        if token in _DO and at > 0:
            names = {word.text for word in analysis.words if word.name}
            rest = [one for one in tokens[at + 2 :] if one not in names and one not in _DIRECTIONS]
            return tokens[at + 1], (*rest[:1], *rest[-1:])
    return None
