"""Where two queries differ: first in facts, which decide alone, then in what is left over, which a model weighs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentic.same_need.alignment import Alignment, align, negates, opposed, past_action
from agentic.same_need.analysis import Analysis, Word, analyse
from agentic.same_need.lexicon import key_of, lexicon
from agentic.same_need.order import order_conflict

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    alignment = align(first.words, second.words)
    conflict = _fact_conflict(first, second)
    left, right = _explained_by_type(alignment.left, second), _explained_by_type(alignment.right, first)
    conflict = conflict or _word_conflict(left, right) or order_conflict(first, second)
    conflict = conflict or _scope_conflict(first, second, left, right)
    plain_left = tuple(word for word in left if not _says_little(word))
    plain_right = tuple(word for word in right if not _says_little(word))
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
    for asking, other in ((first, second), (second, first)):
        unmet = (asking.types & _STRICT_TYPES) - other.types - _asked_nouns(other)
        if unmet == {"count"} and asking.units and asking.units <= other.units:
            continue  # how many days, how many kilometres: the unit says that a number is wanted
        if unmet:
            return f"only one of them asks for {_TYPE_NAMES.get(min(unmet), min(unmet))}"
    if first.tenses and second.tenses and first.tenses.isdisjoint(second.tenses) and _alike_but_tense(first, second):
        return f"the time differs: {_shown(sorted(first.tenses), sorted(second.tenses))}"
    return ""


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


def _explained_by_type(words: Sequence[Word], other: Analysis) -> list[Word]:
    """Leave out nouns that only name what the other query asks for with a question word: "date" beside "when"."""
    nouns = lexicon().type_nouns
    return [word for word in words if word.name or nouns.get(word.key, frozenset()).isdisjoint(other.types)]


def _word_conflict(left: Sequence[Word], right: Sequence[Word]) -> str:
    """Two leftovers of which a query means one: contrasts, opposites by prefix, names."""
    groups = lexicon().groups
    nothing: frozenset[int] = frozenset()
    for one in left:
        for two in right:
            alike = not groups.get(one.key, nothing).isdisjoint(groups.get(two.key, nothing))
            if (opposed(one, two) and not alike) or negates(one.text, two.text):
                return f"“{one.text}” is not “{two.text}”"
    if len(left) == len(right) == 1 and _actions(left[0], right[0]):
        return f"“{left[0].text}” is not “{right[0].text}”"  # one word apart, the embeddings of any two are near
    names = [word for word in (*left, *right) if word.name]
    if names:
        return f"only one of them names “{names[0].text}”"
    return ""


def _actions(one: Word, two: Word) -> bool:
    """Are both what somebody does, in the same place: "who owns", "who sold"? Synonyms are paired off before."""
    return (past_action(one) and past_action(two)) or (one.before == two.before and one.before in _SUBJECTS)


_SUBJECTS = frozenset({"who", "what"})


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
