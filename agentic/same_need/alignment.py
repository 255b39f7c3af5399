"""Which words of one query say the same as which words of another, and which are left over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from agentic.coverage import word_set
from agentic.same_need.lexicon import UNKNOWN_RANK, key_of, lexicon

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agentic.same_need.analysis import Analysis
    from agentic.same_need.parts import Word

_ENDINGS = word_set("""
    s es ed d ing er ers or ors ion ions ation ations ment ments al ally ly ance ence ances ences y ies ied ic ical ize
    izes ized izing ization able ible ability ibility ist ant ent ity ive ure ures age ages ery ary ness ful
""")
_MIN_STEM = 4
_MIN_TYPO = 5
_COMMON, _RARE = 16_000, 13_000


@dataclass(frozen=True, slots=True)
class Alignment:
    """Pairs of words that say the same, and the words of either side that nothing answers."""

    pairs: tuple[tuple[Word, Word], ...]
    left: tuple[Word, ...]
    right: tuple[Word, ...]


def align(first: Analysis, second: Analysis) -> Alignment:
    """Pair words off, the surest ways first; every word is paired at most once: a father's father is not a father."""
    pairs: list[tuple[Word, Word]] = []
    left, right = list(first.words), list(second.words)
    for same in (_equal, _grouped, _inflected, _misspelt):
        left, right = _pair(left, right, pairs, same)
    left, right = _pair_compounds(left, right, pairs)
    left, right = _pair_acronyms(left, right, pairs, first, second)
    return Alignment(tuple(pairs), tuple(left), tuple(right))


def _pair(
    left: list[Word],
    right: list[Word],
    pairs: list[tuple[Word, Word]],
    same: Callable[[Word, Word], bool],
) -> tuple[list[Word], list[Word]]:
    rest: list[Word] = []
    for word in left:
        match = next((other for other in right if same(word, other)), None)
        if match is None:
            rest.append(word)
        else:
            right = [other for other in right if other is not match]
            pairs.append((word, match))
    return rest, right


def _equal(first: Word, second: Word) -> bool:
    if first.key != second.key:
        return False
    if not (first.name and second.name and _roots_differ(first.text, second.text)):
        return True
    return _plain(first) == _plain(second)


def _plain(word: Word) -> str:
    """The country that an adjective stands for, as the lexicon knows it; not a language: "in French"."""
    return word.text if word.before in _LANGUAGE else lexicon().irregular.get(word.text, word.text)


_LANGUAGE = frozenset({"in", "into", "from", "to", "speak", "speaks", "spoken", "speaking", "learn"})


def _roots_differ(first: str, second: str) -> bool:
    """Names are the same only up to a plural or possessive s: Berg and Berger share a stem, not a person."""
    return first.removesuffix("s") != second.removesuffix("s")


def _grouped(first: Word, second: Word) -> bool:
    """Synonyms, as the lexicon has them; a name has none."""
    if (first.name and not first.acronym) or (second.name and not second.acronym):
        return False
    groups = lexicon().groups
    if not groups.get(first.key, _NONE).isdisjoint(groups.get(second.key, _NONE)):
        return True
    degree = next((ending for ending in ("est", "er") if first.text.endswith(ending)), "")
    if not degree or not second.text.endswith(degree):
        return False
    one, two = _base(first.text, first.key), _base(second.text, second.key)  # quickest, fastest
    return one != first.key and two != second.key and not groups.get(one, _NONE).isdisjoint(groups.get(two, _NONE))


_NONE: frozenset[int] = frozenset()


def _inflected(first: Word, second: Word) -> bool:
    """Two forms of one word: the same beginning once an ordinary ending is off."""
    if first.name or second.name or not contrast_sets(first).isdisjoint(contrast_sets(second)):
        return False
    return first.text[:3] == second.text[:3] and not _beginnings(first.text).isdisjoint(_beginnings(second.text))


def same_word(first: str, second: str) -> bool:
    """Two casefolded words are forms of one."""
    return key_of(first) == key_of(second) or (
        first[:3] == second[:3] and not _beginnings(first).isdisjoint(_beginnings(second))
    )


@lru_cache(maxsize=8192)
def _beginnings(word: str) -> frozenset[str]:
    """What may be left of a word, or of its base form, once its ending is off, four letters at least."""
    found = {word, lexicon().irregular.get(word, word)}
    for form in tuple(found):
        for ending in _ENDINGS:
            if form.endswith(ending) and len(form) - len(ending) >= _MIN_STEM:
                found.add(form[: -len(ending)])
    return frozenset(found | {rest[:-1] for rest in found if rest[-1] in "ey" and len(rest) > _MIN_STEM})


def _misspelt(first: Word, second: Word) -> bool:
    """One of the two is a slip of the other: unknown or rare, an edit away from a word that is common."""
    if min(len(first.text), len(second.text)) < _MIN_TYPO or first.name or second.name:
        return False
    if negates(first.text, second.text) or not contrast_sets(first).isdisjoint(contrast_sets(second)):
        return False
    ranks = sorted((lexicon().rank(first.text), lexicon().rank(second.text)))
    if ranks[1] < _RARE:
        return False
    if ranks[0] > _COMMON:
        return len(first.text) > _MIN_TYPO and (
            _doubled_or_swapped(first.text, second.text) or _letter_lost(first.text, second.text)
        )
    anagram = sorted(first.text) == sorted(second.text) and first.text[:2] == second.text[:2]
    if anagram and ranks[1] == UNKNOWN_RANK and first.text[-1] == second.text[-1]:
        return True
    limit = 2 if min(len(first.text), len(second.text)) >= 9 else 1
    return edits(first.text, second.text, limit) <= limit


def opposed(first: Word, second: Word) -> bool:
    """Both are of one set of which a query means one, in whatever degree: longer and short, older and newest."""
    one, two = _members(first.text, first.key), _members(second.text, second.key)
    return any(number == other and member != twin for number, member in one for other, twin in two)


@lru_cache(maxsize=4096)
def _members(text: str, key: str) -> frozenset[tuple[int, str]]:
    """The sets of contrasts that a word, or a word of which it is a degree, is in, each with that member's base."""
    return _contrasts().get(key, _NO_MEMBERS) | _contrasts().get(_base(text, key), _NO_MEMBERS)


_NO_MEMBERS: frozenset[tuple[int, str]] = frozenset()


@cache
def _contrasts() -> Mapping[str, frozenset[tuple[int, str]]]:
    """Sets of contrasts by the keys of their members and of what these are degrees of."""
    found: dict[str, set[tuple[int, str]]] = {}
    for word, numbers in lexicon().contrast_words.items():
        base = _base(word, key_of(word))
        for key in (key_of(word), base):
            found.setdefault(key, set()).update((number, base) for number in numbers)
    return {key: frozenset(members) for key, members in found.items()}


def _base(text: str, key: str) -> str:
    """The key of the word that this one may be a degree of (larger, happiest, bigger), else its own."""
    for ending in ("est", "er"):
        root = text.removesuffix(ending)
        if root != text and len(root) > 1:
            forms = [root, f"{root}e", f"{root[:-1]}y" if root[-1] == "i" else root, root.removesuffix(root[-1])]
            known = [form for form in forms if form in lexicon().vocabulary]
            return key_of(min(known, key=lexicon().rank)) if known else key
    return key


def contrast_sets(word: Word) -> frozenset[int]:
    """Ids of the sets of which a query means one that the word is in."""
    return lexicon().contrasts.get(word.key, _NONE)


def negates(first: str, second: str) -> bool:
    """The one is the other with a negating prefix: authorised, unauthorised."""
    longer, shorter = (first, second) if len(first) > len(second) else (second, first)
    return any(longer == prefix + shorter for prefix in _NEGATING)


_NEGATING = ("un", "non", "in", "im", "il", "ir", "dis", "anti", "de")


def past_action(word: Word) -> bool:
    """Is the word written as what somebody did: signed, sang, wrote?"""
    if word.name:
        return False
    base = lexicon().irregular.get(word.text)
    return (word.text.endswith("ed") and len(word.text) > 4) or (base is not None and base != word.text)


def _doubled_or_swapped(first: str, second: str) -> bool:
    """They differ in a letter written once or twice, or in two neighbours changed round: slips, whatever the word."""
    if abs(len(first) - len(second)) == 1:
        longer, shorter = (first, second) if len(first) > len(second) else (second, first)
        return any(
            longer[at] == longer[at + 1] and longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer) - 1)
        )
    return len(first) == len(second) and sorted(first) == sorted(second) and edits(first, second, 1) == 1


def _letter_lost(first: str, second: str) -> bool:
    """A long word lacks one letter within: calibraton."""
    shorter, longer = sorted((first, second), key=len)
    inner = len(shorter) >= _LONG and len(longer) == len(shorter) + 1 and longer[:4] == shorter[:4]
    return inner and longer[-1] == shorter[-1] and edits(first, second, 1) == 1


_LONG = 9


@lru_cache(maxsize=4096)
def edits(first: str, second: str, limit: int) -> int:
    """Damerau-Levenshtein distance (insertions, deletions, changes, swaps of neighbours); above `limit` any larger."""
    if abs(len(first) - len(second)) > limit:
        return limit + 1
    before_last: list[int] = []
    last = list(range(len(second) + 1))
    for row, sign in enumerate(first, 1):
        now = [row]
        for column, other in enumerate(second, 1):
            cost = min(last[column] + 1, now[column - 1] + 1, last[column - 1] + (sign != other))
            if row > 1 and column > 1 and sign == second[column - 2] and first[row - 2] == other:
                cost = min(cost, before_last[column - 2] + 1)
            now.append(cost)
        if min(now) > limit:
            return limit + 1
        before_last, last = last, now
    return last[-1]


def _pair_compounds(
    left: list[Word], right: list[Word], pairs: list[tuple[Word, Word]]
) -> tuple[list[Word], list[Word]]:
    """Words written together on one side and apart on the other: takeoff, take off."""
    for swapped in (False, True):
        whole, apart = (right, left) if swapped else (left, right)
        for word in list(whole):
            for one, two in zip(list(apart), list(apart)[1:], strict=False):
                if one.text + two.text == word.text:
                    whole.remove(word)
                    apart.remove(one)
                    apart.remove(two)
                    pairs.append((one, word) if swapped else (word, one))
                    break
    return left, right


def _pair_acronyms(
    left: list[Word], right: list[Word], pairs: list[tuple[Word, Word]], first: Analysis, second: Analysis
) -> tuple[list[Word], list[Word]]:
    """An acronym and the words whose initials it is made of."""
    for swapped in (False, True):
        short, full, tokens = (right, left, first.tokens) if swapped else (left, right, second.tokens)
        for word in list(short):
            letters = word.text.removesuffix("s") if len(word.text) > 2 else word.text
            if not 2 <= len(letters) <= 6 or not (word.acronym or word.text not in lexicon().vocabulary):
                continue
            for start in range(len(tokens)):
                run = _spelt_out(letters, tokens, start)
                told = [item for item in full if item.text in run]
                if told:
                    short.remove(word)
                    for item in told:
                        full.remove(item)
                    pairs.append((told[0], word) if swapped else (word, told[0]))
                    break
    return left, right


def _spelt_out(letters: str, tokens: Sequence[str], start: int) -> frozenset[str]:
    """The tokens from `start` whose initials are the letters, little words aside; empty if there are none."""
    run: list[str] = []
    for token in tokens[start:]:
        if len(run) < len(letters) and token[0] == letters[len(run)]:
            run.append(token)
        elif not run or token not in _LITTLE:
            break
        if len(run) == len(letters):
            return frozenset(run)
    return frozenset()


_LITTLE = frozenset({"of", "and", "for", "in", "on", "to", "the", "by", "at", "with"})
