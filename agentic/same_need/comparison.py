"""Where two queries differ: first in facts, which decide alone, then in what is left over, which a model weighs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentic.coverage import word_set
from agentic.same_need.alignment import Alignment, align, negates, opposed, past_action, same_word
from agentic.same_need.analysis import Analysis, analyse
from agentic.same_need.lexicon import key_of, lexicon
from agentic.same_need.order import order_conflict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentic.same_need.parts import Word


@dataclass(frozen=True, slots=True)
class Comparison:
    """`conflict` says in words which fact differs, "" for none. `left` and `right` are words nothing answers."""

    conflict: str
    alignment: Alignment
    left: tuple[Word, ...] = ()
    right: tuple[Word, ...] = ()
    generic_left: int = 0
    generic_right: int = 0
    one_sided: int = 0


def compare(earlier: str, query: str) -> Comparison:
    """Compare two queries."""
    first, second = analyse(earlier), analyse(query)
    alignment = align(first, second)
    conflict = _fact_conflict(first, second)
    left = _explained(_not_said_twice(alignment.left, [one for one, _ in alignment.pairs]), first, second)
    right = _explained(_not_said_twice(alignment.right, [two for _, two in alignment.pairs]), second, first)
    conflict = conflict or _word_conflict(left, right) or order_conflict(first, second)
    conflict = conflict or _scope_conflict(first, second, left, right)
    conflict = conflict or _tense_conflict(first, second, alignment)
    plain_left = tuple(word for word in left if not _says_little(word))
    plain_right = tuple(word for word in right if not _says_little(word))
    if not conflict and not plain_left and not plain_right:
        conflict = _same_place(left, right)
    return Comparison(
        conflict=conflict,
        alignment=alignment,
        left=plain_left,
        right=plain_right,
        generic_left=len(left) - len(plain_left),
        generic_right=len(right) - len(plain_right),
        one_sided=sum(
            bool(one) != bool(two)
            for one, two in (
                (first.units, second.units),
                (first.modality - {"may"}, second.modality - {"may"}),
                (first.quantifiers, second.quantifiers),
                (first.types - {"agent", "manner"}, second.types - {"agent", "manner"}),
            )
        ),
    )


def _same_place(left: Sequence[Word], right: Sequence[Word]) -> str:
    """Even general words differ where one stands for the other: what employees submit, what employees receive."""
    for one in left:
        for two in right:
            if one.before == two.before and one.before:
                return f"“{one.text}” is not “{two.text}”"
    return ""


def _tense_conflict(first: Analysis, second: Analysis, alignment: Alignment) -> str:
    """What may or must be done, or is done, is not what was done: who can sign, who signs, who signed."""
    for one, two in alignment.pairs:
        for now, then, own, other in ((one, two, first, second), (two, one, second, first)):
            if now.key != then.key or not past_action(then) or past_action(now) or now.name or then.name:
                continue
            passive = then.before in _BEING or now.before in _BEING
            if own.modality and not other.modality and then.before in _CLAUSE and not passive:
                return f"“{now.text}” in one, “{then.text}” in the other"
            if now.before in _MODALS and then.before in _CLAUSE:
                return f"“{now.before} {now.text}” in one, “{then.text}” in the other"
            finite = now.before == then.before and now.before in _CLAUSE
            if finite and now.text.endswith("s") and not first.numbers:
                return f"“{now.text}” in one, “{then.text}” in the other"
    return ""


_MODALS = frozenset({"can", "may", "might", "could", "would", "will", "shall", "should", "must"})
_CLAUSE = frozenset({"who", "that", "which"})
_BEING = frozenset({"is", "are", "was", "were", "be", "been", "being", "have", "has", "had"})


def _says_little(word: Word) -> bool:
    """A general noun that one query may lack; not where it is what is asked for: "what team …"."""
    return not word.name and word.key in lexicon().generic and word.before not in _ASKING


_ASKING = frozenset({"what", "which", "whose"})


def _fact_conflict(first: Analysis, second: Analysis) -> str:
    """The first fact that differs, in words."""
    if first.numbers != second.numbers:
        return f"numbers or dates differ: {_shown(first.numbers, second.numbers)}"
    units, others = _pounds(first.units, second.units), _pounds(second.units, first.units)
    if units != others and (first.numbers or (units and others and units.isdisjoint(others))):
        return f"units differ: {_shown(sorted(units), sorted(others))}"
    if first.negated != second.negated:
        return "one is negated, the other is not"
    if first.quantifiers != second.quantifiers and (first.quantifiers or second.quantifiers):
        return f"the scope differs: {_shown(sorted(first.quantifiers), sorted(second.quantifiers))}"
    if first.modality and second.modality and first.modality.isdisjoint(second.modality):
        return f"modality differs: {_shown(sorted(first.modality), sorted(second.modality))}"
    if conflict := _form_conflict(first, second) or _little_words(first, second):
        return conflict
    for asking, other in ((first, second), (second, first)):
        unmet = (asking.types & _STRICT_TYPES) - other.types - _asked_nouns(other)
        if unmet == {"count"} and asking.units and asking.units <= other.units:
            continue  # how many days, how many kilometres: the unit says that a number is wanted
        if unmet:
            return f"only one of them asks for {_TYPE_NAMES.get(min(unmet), min(unmet))}"
    if first.tenses and second.tenses and first.tenses.isdisjoint(second.tenses) and _alike_but_tense(first, second):
        return f"the time differs: {_shown(sorted(first.tenses), sorted(second.tenses))}"
    return ""


def _form_conflict(first: Analysis, second: Analysis) -> str:
    """Whether something is so is one question, how it is done or whether it ought to be are others."""
    if first.polar and second.polar and (first.modality & _OUGHT) != (second.modality & _OUGHT):
        return f"modality differs: {_shown(sorted(first.modality), sorted(second.modality))}"
    for told, other in ((first, second), (second, first)):
        firm = "should" in told.modality and not other.modality and "manner" not in told.types | other.types
        if firm and not _FINITE.isdisjoint(other.tokens) and _SPEAKERS.isdisjoint((*told.tokens, *other.tokens)):
            return "only one of them asks for what should be"
    if first.polar != second.polar and "manner" in (first.types | second.types):
        return "only one of them asks for a way to do it"
    return ""


_FINITE, _SPEAKERS = frozenset({"does", "did"}), frozenset({"i", "we", "you", "one"})
_OUGHT = frozenset({"should", "must"})


def _little_words(first: Analysis, second: Analysis) -> str:
    """Words that mostly add nothing, but turn a need where they stand against each other: on, off; give, get."""
    one, two = frozenset(first.tokens), frozenset(second.tokens)
    for these, those in _TURNING:
        for this, that in ((these, those), (those, these)):
            if not this.isdisjoint(one) and this.isdisjoint(two) and that.isdisjoint(one) and not that.isdisjoint(two):
                return f"“{min(this & one)}” is not “{min(that & two)}”"
    return ""


_TURNING = tuple(
    (word_set(these), word_set(those))
    for these, those in (
        ("on", "off"),
        ("in", "out"),
        ("up", "down"),
        ("he him his", "she her hers"),
        ("make makes made making", "use uses used using"),
        ("give gives gave given giving", "get gets got receive receives received take takes took taken"),
        ("come comes came coming", "go goes went going"),
    )
)


def _pounds(units: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    """Pounds are money or a weight: whichever the other query speaks of."""
    meant = others & {"gbp", "lb"}
    return units - {"pound"} | meant if "pound" in units and meant else units


def _alike_but_tense(first: Analysis, second: Analysis) -> bool:
    said = lexicon().tenses.keys() | lexicon().fillers
    one, two = (sorted(key_of(token) for token in analysis.tokens if token not in said) for analysis in (first, second))
    return one == two


_STRICT_TYPES = frozenset(
    {"time", "place", "reason", "count", "long", "often", "far", "old", "tall", "size", "weight", "fast", "depth"}
    | {"width", "temperature", "thick", "strength"}
)
_TYPE_NAMES = {"count": "a number", "long": "a duration", "often": "a frequency", "far": "a distance", "old": "an age"}


def _asked_nouns(analysis: Analysis) -> frozenset[str]:
    """Types that nouns of the query name: date -> time."""
    nouns = lexicon().type_nouns
    return frozenset(kind for word in analysis.words for kind in nouns.get(word.key, frozenset()))


def _not_said_twice(words: Sequence[Word], paired: Sequence[Word]) -> list[Word]:
    """Leave out a verb that only repeats the noun before it: "which publisher published"."""
    doers = {word.text for word in paired if not word.name}
    return [
        word
        for word in words
        if not (word.before in doers and word.before != word.text and same_word(word.before, word.text))
    ]


def _explained(words: Sequence[Word], own: Analysis, other: Analysis) -> list[Word]:
    """Leave out what the other query says without a content word.

    That is a noun which only names what the other asks for with a question word ("date" beside "when"; not where both
    ask so: "who is the architect", "who is the supplier"), a verb that a question for a measure carries, and a synonym
    of a light verb of the other's ("supply" beside "provide").
    """
    if not words:
        return []
    nouns, groups = lexicon().type_nouns, lexicon().groups
    none: frozenset[int] = frozenset()
    asked = other.types - (own.types & _ROLES)
    carried = frozenset[str]().union(*(_CARRIED.get(kind, frozenset()) for kind in own.types))
    light = none.union(*(groups.get(key_of(token), none) for token in _LIGHT.intersection(other.tokens)))
    return [
        word
        for word in words
        if word.name
        or (
            word.text not in carried
            and nouns.get(word.key, frozenset()).isdisjoint(asked)
            and groups.get(word.key, none).isdisjoint(light)
        )
    ]


_ROLES = frozenset({"agent", "place"})
_CARRIED = {
    "fast": word_set("travel travels move moves run fly flies swim sail drive ride"),
    "weight": word_set("weigh weighs"),
}
"""Verbs that a question for a measure cannot do without: how fast it travels is its speed."""
_LIGHT = word_set("""
    provide provides provided make makes made use uses used get gets got give gives happen happens happened need
    take takes took taken find finds
""")


def _word_conflict(left: Sequence[Word], right: Sequence[Word]) -> str:
    """Two leftovers of which a query means one: contrasts, opposites by prefix, names."""
    groups = lexicon().groups
    nothing: frozenset[int] = frozenset()
    for one in left:
        for two in right:
            alike = not groups.get(one.key, nothing).isdisjoint(groups.get(two.key, nothing))
            if (opposed(one, two) and not alike) or negates(one.text, two.text):
                return f"“{one.text}” is not “{two.text}”"
    if left and right and (left[0].before == right[0].before or _actions(left, right)):
        return f"“{left[0].text}” is not “{right[0].text}”"  # one word apart, the embeddings of any two are near
    names = [word for word in (*left, *right) if word.name]
    if names:
        return f"only one of them names “{names[0].text}”"
    return ""


def _actions(left: Sequence[Word], right: Sequence[Word]) -> bool:
    """Is one word of each left, what somebody did: "signed", "ended"? Synonyms are paired off before."""
    return len(left) == len(right) == 1 and past_action(left[0]) and past_action(right[0])


def _scope_conflict(first: Analysis, second: Analysis, left: Sequence[Word], right: Sequence[Word]) -> str:
    """Only one of them says for whom, where, what else, in which unit or how surely."""
    if bool(left) != bool(right):
        for word in left or right:
            if word.text in _TEMPORAL:
                return f"only one of them says “{word.text}”"
            if word.before in _SCOPING:
                return f"only one of them says “{word.before} {word.text}”"
    if (left or right) and bool(first.units) != bool(second.units):
        return "only one of them names a unit"
    if bool(first.modality & _FIRM) != bool(second.modality & _FIRM):
        return "only one of them asks for what is planned or prescribed"
    return ""


_SCOPING = frozenset({"for", "in", "on", "at", "with", "during", "among", "within", "and", "or", "as", "per", "under"})
_TEMPORAL = frozenset({"before", "after", "since", "until", "during"})
_FIRM = frozenset({"planned", "actual", "optional", "forbidden"})


def _shown(first: Sequence[str], second: Sequence[str]) -> str:
    def side(items: Sequence[str], others: Sequence[str]) -> str:
        own = [item.partition(":")[2] or item for item in items if item not in others]
        return ", ".join(own) or "none"

    return f"{side(first, second)} / {side(second, first)}"
