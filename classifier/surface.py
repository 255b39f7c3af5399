"""What the wording of a question shows: counts over its folded words, each with the reason it is there.

These features never decide alone (AUC 0.6 on held-out domains of our own questions); they add the structure that a mean
of word vectors loses: nesting, chains of possession, aggregation. Nothing here sees case or final punctuation. Every
value is finite and lies in [0, 8].
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from classifier.neutral import folded

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_POSSESSIVE = re.compile(r"(?:[^\W_]['’]s|s['’])(?=\s)")
_DESCRIBED = re.compile(r"\b(?:the|that|those|a|an) (?:[^\W_]+ ){1,3}(?:that|which|who|whom|whose|where)\b")
_CLAUSE = re.compile(r"[,;:.?!–—]\s")
_SENTENCE = re.compile(r"[.?!]\s")
_WHICH_OF = re.compile(r"\bwhich of\b|\bwhich [^\W_]+s\b|\bwho (?:else|all)\b")
_HOW_MANY = re.compile(r"\bhow (?:many|much)\b")
_DIGIT = re.compile(r"\d")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ASKING = _words("what who whom whose which when where why how")
_PERSON = _words("who whose whom")
_LINKING = _words("that which")
_AUXILIARY = _words(
    "is are was were be been do does did can could will would should shall may might must has have had isn't aren't "
    "doesn't don't didn't can't won't"
)
_PREPOSITION = _words(
    "in on at by for from with to into onto under over between among across during since until before after against "
    "without within through than per about as"
)
_DEFINITE = _words("the this that these those")
_PRONOUN = _words("he she it they him her them his its their hers theirs")
_FIRST_PERSON = _words("i we my our us me mine ours")
_COMPARING = _words(
    "more less fewer most least higher lower highest lowest longer shorter longest shortest bigger smaller biggest "
    "smallest larger largest cheaper dearer cheapest dearest older younger oldest youngest earlier later earliest "
    "latest better worse best worst faster slower same different other another else compare compared difference differ "
    "both either neither versus vs than rather gap apart"
)
_QUANTIFYING = _words("all every each any both several across total average overall together combined")
_NEGATING = _words("not no never without nor none")
_JOINING = _words("or but nor then while whereas so unless although because")
_TIMING = _words(
    "before after since until when while during then earlier later still now currently today last next first"
)
_REPEATING = _words("also still too again already else")

FEATURES: tuple[tuple[str, str], ...] = (
    (
        "words",
        "longer questions say more about what they need; the logarithm, so that background does not drown the rest",
    ),
    ("word_length", "mean letters a word: jargon and formal wording against chat"),
    ("long_words", "words of nine letters and more"),
    ("commas", "lists and inserted background"),
    ("clauses", "clause ends: several things said, or several asked"),
    ("sentences", "background before the question"),
    ("and", "two things asked together, in one place or in two"),
    ("joining", "alternatives, conditions and contrasts"),
    ("if", "a condition that another document may settle"),
    ("possessive", "chains of possession: the supplier's auditor's report"),
    ("of", "the same chains with of"),
    ("prepositions", "nested noun phrases"),
    ("definite", "things spoken of as known"),
    (
        "described",
        "a thing described in place of named (the pump that failed): the description has to be resolved first",
    ),
    ("person_inside", "who or whose beyond the opening: a person described in place of named"),
    ("linking_inside", "that or which beyond the opening: the same for things"),
    ("asking", "question words: several questions in one"),
    ("asking_inside", "question words beyond the opening"),
    ("pronouns", "things mentioned earlier"),
    ("first_person", "the asker's own case, to be held against a rule"),
    ("comparing", "comparison and rank, over places or within one table"),
    ("superlative", "words in -est: a rank over many things"),
    ("quantifying", "all, each, any, total: facts gathered over many places"),
    ("negating", "absence, which needs a look at everything"),
    ("timing", "order in time"),
    ("repeating", "also, still, again: a case held against another"),
    ("plural", "words in -s: several things meant"),
    ("participle_ing", "described by what is done"),
    ("participle_ed", "described by what was done"),
    ("digits", "figures and codes, which name a thing exactly"),
    ("how_many", "a count or an amount"),
    ("which_of", "a selection among many"),
    ("yes_no", "a rule applied to a case"),
    ("what", "asks for a thing"),
    ("who", "asks for a person"),
    ("when", "asks for a time"),
    ("where", "asks for a place"),
    ("why", "asks for a reason, often told in one place"),
    ("how", "asks for a procedure, often told in one place"),
)
"""Names of the features in their order, and why each is there."""

NAMES: tuple[str, ...] = tuple(name for name, _ in FEATURES)
_MOST = 8.0


def surface_features(text: str) -> NDArray[np.float32]:
    """Return the features (len(NAMES),) of a question, whatever text it is."""
    lowered = folded(text)
    words = _WORD.findall(lowered)
    inside = words[2:]
    first = words[0] if words else ""
    present = frozenset(words)

    def count(kind: frozenset[str]) -> int:
        return sum(word in kind for word in words)

    def count_inside(kind: frozenset[str]) -> int:
        return sum(word in kind for word in inside)

    values = (
        math.log1p(len(words)),
        sum(map(len, words)) / max(len(words), 1) / 2.0,
        sum(len(word) > 8 for word in words),
        lowered.count(","),
        len(_CLAUSE.findall(lowered)),
        len(_SENTENCE.findall(lowered)),
        words.count("and"),
        count(_JOINING),
        "if" in present,
        len(_POSSESSIVE.findall(lowered)),
        words.count("of"),
        count(_PREPOSITION),
        count(_DEFINITE),
        len(_DESCRIBED.findall(lowered)),
        count_inside(_PERSON),
        count_inside(_LINKING),
        count(_ASKING),
        count_inside(_ASKING),
        count(_PRONOUN),
        count(_FIRST_PERSON),
        count(_COMPARING),
        sum(len(word) > 4 and word.endswith("est") for word in words),
        count(_QUANTIFYING),
        count(_NEGATING),
        count(_TIMING),
        count(_REPEATING),
        sum(len(word) > 3 and word.endswith("s") for word in words),
        sum(len(word) > 4 and word.endswith("ing") for word in words),
        sum(len(word) > 3 and word.endswith("ed") for word in words),
        bool(_DIGIT.search(lowered)),
        bool(_HOW_MANY.search(lowered)),
        bool(_WHICH_OF.search(lowered)),
        first in _AUXILIARY,
        "what" in present,
        not present.isdisjoint(_PERSON),
        "when" in present,
        "where" in present,
        "why" in present,
        "how" in present,
    )
    return np.minimum(np.array(values, dtype=np.float32), np.float32(_MOST))
