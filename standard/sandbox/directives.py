"""Prevents: an order to the model that passes for prose.

A directive is found sentence by sentence as a few concepts close together (lexicon.py): to ignore + previous +
instructions. What only talks about such orders is told apart by how it is put: quoted or in code where the text around
it is about attacks, reported ("attempts to make it ignore …") instead of spoken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from standard.sandbox.lexicon import Lexicon, Token

_LONGEST_SENTENCE = 60
_SHORT = 14
_SHORT_UNSPACED = 40
_NEIGHBOURS = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """A technique and what makes it: a token for each slot, all within `span` tokens of the first slot's.

    `without`: concepts that rule it out. `traits`: what the sentence must be (SHORT: few words; TEMPLATE, DELIMITER,
    ROLE: after such a mark). `in_order`: the tokens come in the order of the slots. `line` is its place in the file.
    """

    technique: str
    slots: tuple[frozenset[str], ...]
    span: int
    without: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()
    in_order: bool = False
    line: int = 0


@dataclass(frozen=True, slots=True)
class Sentence:
    """Concepts of the tokens of one sentence, and what of it bears on whether an order in it is meant.

    A verb in the imperative also has its concept with an exclamation mark. `after` is the kind of mark that precedes
    the sentence (template, delimiter, role) or empty.
    """

    start: int
    end: int
    tokens: tuple[frozenset[str], ...]
    words: tuple[str, ...]
    concepts: frozenset[str]
    quoted: bool
    code: bool
    about_attacks: int
    after: str
    traits: frozenset[str]


@dataclass(frozen=True, slots=True)
class Finding:
    """A directive: the technique, its place in the normalised text, and whether it is only talked about.

    `after` tells what kind of mark stands before it: a template token, a forged delimiter, a speaker's label. `rule` is
    the line of the rule.
    """

    technique: str
    start: int
    end: int
    reported: bool
    after: str = ""
    rule: int = 0


_MARKS = frozenset({"template", "delimiter", "role"})
_REACH_OF_A_MARK = 2
"""Sentences after a mark that it bears upon."""


def sentences(tokens: Sequence[Token], text: str) -> list[Sentence]:
    """Cut tokens into sentences that hold any concept; endless ones into parts."""
    found: list[Sentence] = []
    current: list[Token] = []
    after, left = "", 0
    for token in tokens:
        ends = token.kind == "stop" or token.kind in _MARKS
        if ends or len(current) >= _LONGEST_SENTENCE:
            if any(part.kind in {"word", "unspaced"} for part in current):
                _close(found, current, text, after)
                left -= 1
                after = after if left > 0 else ""
            current = []
        if token.kind in _MARKS:
            if token.kind != "role" or not after:
                after = token.kind
            left = _REACH_OF_A_MARK
        elif token.kind != "stop":
            current.append(token)
    _close(found, current, text, after)
    return found


_SIGNS_OF_CODE = frozenset("\\{}=|^$*<>_[]()")
_VERBS = frozenset(
    "IGNORE DISCLOSE SEND SAY CALL DELETE OBEY DECODE MEMORY".split()  # noqa: SIM905
)
# words after which an English verb (or its like in other languages) is an order
_BEFORE_AN_ORDER = frozenset(
    """
    and then please now just also instead must you should shall or simply immediately always first next kindly never
    finally again will below above note so
    und dann bitte et puis y luego e poi então и затем пожалуйста jetzt sofort
    """.split()  # noqa: SIM905
)


def _close(found: list[Sentence], tokens: list[Token], text: str, after: str) -> None:
    concepts = {concept for token in tokens for concept in token.concepts}
    if not concepts:
        return
    start, end = tokens[0].start, tokens[-1].end
    said = text[start:end]
    sets: list[frozenset[str]] = []
    words: list[str] = []
    previous: Token | None = None
    for token in tokens:
        own = frozenset(token.concepts)
        word = text[token.start : token.end]
        verbs = own & _VERBS
        if verbs and (
            previous is None
            or previous.kind != "word"
            or (word[0] > "\u052f" and len(said) <= _SHORT_UNSPACED * (1 if word[0] > "\u3000" else 3))
            or text[previous.start : previous.end] in _BEFORE_AN_ORDER
        ):
            own |= {f"!{verb}" for verb in verbs}
            concepts |= own
        if token.kind in {"word", "unspaced", "url", "email"}:
            sets.append(own)
            words.append(word)
        previous = token
    if not words:
        return
    signs = sum(map(said.count, _SIGNS_OF_CODE))
    found.append(
        Sentence(
            start=start,
            end=end,
            tokens=tuple(sets),
            words=tuple(words),
            concepts=frozenset(concepts),
            quoted=any(token.kind == "quote" for token in tokens),
            code=signs > 0.06 * len(said),
            about_attacks=sum("EXPO" in own for own in sets),
            after=after,
            traits=frozenset(
                {
                    *({"SHORT"} if len(words) <= _SHORT and len(said) <= 12 * _SHORT else ()),
                    *({after.upper()} if after else ()),
                }
            ),
        )
    )


_NOT_IN_CODE = frozenset({"tool-call", "addressed", "split"})


@dataclass(frozen=True, slots=True)
class RuleBook:
    """Rules by each concept that may meet their first slot, so that a sentence is held against few of them."""

    rules: tuple[Rule, ...]
    by_concept: Mapping[str, tuple[Rule, ...]]

    def candidates(self, concepts: frozenset[str]) -> Iterator[Rule]:
        """Rules whose every slot some concept of a sentence could meet, each once."""
        seen: set[int] = set()
        for concept in concepts:
            for rule in self.by_concept.get(concept, ()):
                if rule.line not in seen:
                    seen.add(rule.line)
                    if not any(slot.isdisjoint(concepts) for slot in rule.slots) and rule.without.isdisjoint(concepts):
                        yield rule

    def is_possible(self, concepts: frozenset[str]) -> bool:
        """Whether any rule could be met by these concepts, in whatever order and distance; a sentence may be short.

        ~TEMPLATE and the like among them say that there is such a mark.
        """
        return any(
            all(trait == "SHORT" or f"~{trait}" in concepts for trait in rule.traits)
            and not any(slot.isdisjoint(concepts) for slot in rule.slots)
            for concept in concepts
            for rule in self.by_concept.get(concept, ())
        )


def rule_book(rules: Iterable[Rule]) -> RuleBook:
    """Index rules by their first slot."""
    rules = tuple(rules)
    by_concept: dict[str, list[Rule]] = {}
    for rule in rules:
        for concept in rule.slots[0]:
            by_concept.setdefault(concept, []).append(rule)
    return RuleBook(rules, {concept: tuple(found) for concept, found in by_concept.items()})


def directives(found: Sequence[Sentence], book: RuleBook) -> list[Finding]:
    """Directives in sentences of one text, in order; one for each rule that a sentence meets."""
    findings: list[Finding] = []
    around = [sentence.about_attacks for sentence in found]
    whole = sum(map(bool, around))
    for number, sentence in enumerate(found):
        if len(sentence.concepts) < 2:
            continue
        near = sum(around[max(0, number - _NEIGHBOURS) : number + _NEIGHBOURS + 1]) - around[number]
        for rule in book.candidates(sentence.concepts):
            if sentence.code and rule.technique in _NOT_IN_CODE:
                continue
            place = _match(sentence, rule)
            if place is not None:
                reported = _is_reported(sentence, place, near, whole)
                findings.append(
                    Finding(rule.technique, sentence.start, sentence.end, reported, sentence.after, rule.line)
                )
    return findings


def _match(sentence: Sentence, rule: Rule) -> tuple[int, int] | None:
    """The first place where every slot has a token of its own: indexes of its first and last token."""
    if not rule.traits <= sentence.traits:
        return None
    places = [[index for index, own in enumerate(sentence.tokens) if not slot.isdisjoint(own)] for slot in rule.slots]
    for anchor in places[0]:
        taken = {anchor}
        for options in places[1:]:
            least = max(taken) + 1 if rule.in_order else anchor - rule.span
            free = [index for index in options if index not in taken and least <= index <= anchor + rule.span]
            if not free:
                break
            taken.add(min(free, key=lambda index: abs(index - anchor)))
        else:
            return min(taken), max(taken)
    return None


_REPORTING = frozenset(
    """
    to could can may might would attempts tries tried cause causes causing make makes making instructing instructs tells
    telling like it they them that which who
    """.split()  # noqa: SIM905
)


def _is_reported(sentence: Sentence, place: tuple[int, int], near: int, whole: int) -> bool:
    if not near and whole < 2:
        return False
    if sentence.quoted or sentence.code or sentence.about_attacks:
        return True
    return not _REPORTING.isdisjoint(sentence.words[max(0, place[0] - 3) : place[0]])


def rules_of(lines: Iterable[str]) -> Iterator[Rule]:
    """Read rules: `technique span: A|B C|D -E` (slots, then concepts that rule it out); # begins a comment."""
    for number, line in enumerate(lines, 1):
        head, _, body = line.partition("#")[0].partition(":")
        if not body.strip():
            continue
        technique, span = head.split()
        parts = body.split()
        yield Rule(
            technique=technique,
            slots=tuple(frozenset(part.split("|")) for part in parts if part[0] not in "-~"),
            traits=frozenset(part[1:] for part in parts if part.startswith("~")),
            span=int(span.rstrip(">")),
            in_order=span.endswith(">"),
            line=number,
            without=frozenset(part[1:] for part in parts if part.startswith("-")),
        )


def read_directives(text: str, lexicon: Lexicon, book: RuleBook) -> list[Finding]:
    """Directives of a normalised text."""
    return directives(sentences(lexicon.tokens(text), text), book)
