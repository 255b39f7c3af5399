"""A query taken apart into its facts: numbers, units, dates, negation, scope, modality, what is asked for, and words.

English is what the lexicon knows. In other languages numbers, codes and names are still found, and every other word
stands for itself.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from agentic.coverage import word_set
from agentic.same_need.clock import spell_times
from agentic.same_need.lexicon import LONGEST_PHRASE, Lexicon, key_of, lexicon
from agentic.same_need.parts import Builder, Token, Word
from agentic.same_need.quantities import take_number

_TOKEN = re.compile(
    r"[€$£]|%|°[cf]\b"
    r"|\d{4}-\d{2}-\d{2}"
    r"|[^\W_]*\d[^\W_]*(?:[-./:,][^\W_]*\d[^\W_]*)*(?:[-/][^\W\d_]+)?"
    r"|[^\W\d_]+-free\b"
    r"|[^\W\d_]+(?:[&/][^\W\d_]+)*(?:['’][^\W\d_]+)?"
    r"|[?!,;:()\"“”]"
)
_NUMERO = re.compile(r"\b[Nn](?:[or]\.|º)(?=\s|$)|№")
_GLOSS = re.compile(r"\s*\(([A-Z]{2,6})s?\)")
_WITH_WORD = re.compile(r"(\d+(?:[.,]\d+)*)-([a-z]+)")
_MEASURES = frozenset({"long", "far", "tall", "size", "weight", "fast", "depth", "width", "thick"})
_ABLE = frozenset({"can", "may"})
_ENCLITICS = {"ll": "will", "re": "are", "ve": "have"}
_ASKING = frozenset({"what", "which", "how"})
_ARTICLES = frozenset({"the", "a", "an", "their", "its", "our", "your", "my", "his", "her"})
MAX_TOKENS = 120
"""Tokens of a query that are read; a need is told in fewer."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """The facts of a query.

    `types` is what kind of thing it asks for; `tokens` its words without articles; `polar`: yes or no is an answer.
    """

    words: tuple[Word, ...]
    numbers: tuple[str, ...]
    units: frozenset[str]
    negated: bool
    quantifiers: frozenset[str]
    modality: frozenset[str]
    tenses: frozenset[str]
    types: frozenset[str]
    tokens: tuple[str, ...]
    polar: bool = False


@lru_cache(maxsize=512)
def analyse(query: str) -> Analysis:
    """Take a query apart."""
    words = lexicon()
    shouting = query.isupper()
    tokens = _replace_phrases(_tokens(query), words, shouting=shouting)
    built = Builder()
    at = 0
    while at < len(tokens):
        at += _take(tokens, at, built, words, shouting=shouting)
    return Analysis(
        words=tuple(built.words),
        numbers=tuple(sorted(built.numbers)),
        units=frozenset(built.units),
        negated=built.negations % 2 == 1,
        quantifiers=frozenset(built.quantifiers),
        modality=frozenset(built.modality | _past_conditional(tokens)),
        tenses=frozenset(built.tenses - {"present"} | {"past"} if _perfect(tokens, words) else built.tenses),
        types=frozenset(built.types),
        tokens=tuple(
            token.written if len(token.text) == 1 and token.capital and not token.first else token.text
            for token in tokens
            if (token.text[0].isalnum() or token.text[0] in "@€$£%°")
            and (token.text not in _ARTICLES or (token.capital and not token.first))
        ),
        polar=_polar([token.text for token in tokens], words),
    )


def _polar(texts: list[str], words: Lexicon) -> bool:
    """Does it ask whether? "Is there …" and polite requests ("can you …", "may I see …") ask for a thing."""
    texts = _spoken(texts)
    if len(texts) < 3 or texts[0] not in _AUXILIARIES or texts[1] in {"you", "there", "anyone", "somebody", "someone"}:
        return False
    if texts[1] in {"i", "we"} and texts[2] in words.fillers:
        return False
    return not any(text in _ASKING or text in words.question_words for text in texts)


_AUXILIARIES = word_set(
    "is are was were am do does did has have had can could may might must should shall will would "
    "isn't aren't doesn't don't"
)
_GREETINGS = word_set("hi hello hey so and but please ok okay well now actually just")


def _spoken(texts: list[str]) -> list[str]:
    """The words of what is asked: without greetings, and without "please tell me:"."""
    start = len(texts) - texts[::-1].index(":") if ":" in texts else 0
    return [text for text in texts[start:] if text[0].isalpha() and text not in _GREETINGS]


def _perfect(tokens: list[Token], words: Lexicon) -> bool:
    """Has it been done: "has … rejected", "have … written"."""
    texts = _spoken([token.text for token in tokens])
    if texts[:1] not in (["has"], ["have"]) or not _AUXILIARIES.isdisjoint(texts[1:]):
        return False
    return any(text.endswith("ed") or words.irregular.get(text, text) != text for text in texts[2:])


def _past_conditional(tokens: list[Token]) -> set[str]:
    """What might have been: "could … have"."""
    texts = [token.text for token in tokens]
    for modal in ("could", "would", "should", "might"):
        if modal in texts and "have" in texts[texts.index(modal) :]:
            return {"could_have"}
    return set()


def _tokens(query: str) -> list[Token]:
    text = _without_glosses(_NUMERO.sub("number", unicodedata.normalize("NFKC", query).replace("’", "'")))
    text = spell_times(text)
    found: list[Token] = []
    first = True
    for match in _TOKEN.finditer(text):
        written = match.group().removesuffix("'s").removesuffix("'")
        lowered = written.casefold()
        parts = [written]
        host, mark, enclitic = written.partition("'")
        if mark and enclitic in _ENCLITICS:
            parts = [host, _ENCLITICS[enclitic]]
        elif mark and enclitic == "d":
            parts = [host, "did" if host.casefold() in lexicon().question_words else "would"]
        elif lowered.endswith("-free"):
            parts = ["without", *written[:-5].split("-")]
        elif "-" in written and not any(sign.isdigit() for sign in written):
            parts = written.split("-")
        elif (counted := _WITH_WORD.fullmatch(lowered)) and counted[2] in lexicon().vocabulary:
            parts = written.split("-")  # a 2-day ticket
        elif "/" in written and not any(sign.isdigit() for sign in written) and lowered not in lexicon().units:
            parts = written.split("/")
        for part in parts:
            if part:
                found.append(Token(part.casefold(), part, first))
                first = part in "?!:;"  # a new sentence begins: what is written large there need not be a name
        if len(found) >= MAX_TOKENS:
            break
    return found


def _without_glosses(text: str) -> str:
    """The text without acronyms in brackets whose words stand before them: value added tax (VAT)."""

    def kept(match: re.Match[str]) -> str:
        words = re.findall(r"[^\W\d_]+", text[: match.start()])[-len(match[1]) :]
        return "" if "".join(word[0] for word in words).casefold() == match[1].casefold() else match[0]

    return _GLOSS.sub(kept, text)


def _replace_phrases(tokens: list[Token], words: Lexicon, *, shouting: bool) -> list[Token]:
    """Put single signs in the place of phrases, and parts in the place of words that hold several."""
    out: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        size = 0
        if token.text in words.first_words:
            for length in range(min(LONGEST_PHRASE, len(tokens) - at), 1, -1):
                place = words.phrases.get(" ".join(item.text for item in tokens[at : at + length]))
                if place is not None:
                    out += [Token(part, part, token.first) for part in place]
                    size = length
                    break
        if not size:
            size = 1
            acronym = token.written.isupper() and len(token.written) > 1
            # "US" and "WHO" are names, "us" and "who" are not.
            place = words.acronyms.get(token.written) if acronym and not shouting else None
            counted = token.text == "min" and at > 0 and tokens[at - 1].text[0].isdigit()
            place = place or (None if counted else words.expansions.get(token.text))
            if place is not None and (acronym or token.text not in words.fillers):
                out += [Token(part, part, token.first) for part in place]
            else:
                out.append(token)
        at += size
    return out


def _take(tokens: list[Token], at: int, built: Builder, words: Lexicon, *, shouting: bool) -> int:
    """Take the token at `at` (and those that belong to it) into the builder; how many were taken."""
    token = tokens[at]
    text = token.text
    if text.startswith("#"):
        table, _, member = text[1:].partition(":")
        {"quantifiers": built.quantifiers, "modality": built.modality, "units": built.units}[table].add(member)
        return 1
    if text.startswith("@"):
        built.types.add(text[1:])
        return 1
    if not text[0].isalnum() and text not in words.units:
        return 1
    taken = take_number(tokens, at, built, words)
    if taken:
        return taken
    following = tokens[at + 1].text if at + 1 < len(tokens) else ""
    if text == "how":
        kind = words.how.get(following)
        built.types.add(kind or "manner")
        most = any(item.text == "maximum" for item in tokens)
        if kind in _MEASURES and not most and at + 2 < len(tokens) and tokens[at + 2].text in _ABLE:
            built.words.append(Word("maximum", key_of("maximum"), name=False))  # how heavy may it be
            return 3
        return 2 if kind else 1
    acronym = token.written.isupper() and len(token.written) > 1 and not shouting
    if text in words.question_words and not acronym:
        # A second question word joins clauses: "what should I do when …", "who knows where …".
        if not any(item.text in words.question_words or item.text in _ASKING for item in tokens[:at]):
            built.types.add(words.question_words[text])
        return 1
    if text in words.negators or text.endswith("n't"):
        built.negations += 1
        return 1
    if text in words.tenses:
        built.tenses.add(words.tenses[text])
    if text in words.units:
        built.units.add(words.units[text])
        return 1
    if text == "last" and not any(item.text[0].isalnum() for item in tokens[at + 1 :]):
        return 1  # "how long does it last"
    if text in words.quantifiers:
        built.quantifiers.add(words.quantifiers[text])
        return 1
    if text in words.modality and not acronym:
        built.modality.add(words.modality[text])
        return 1
    if text in words.fillers and not acronym:
        return 1
    leads = at + 1 < len(tokens) and tokens[at + 1].capital
    # A query's first word is written large anyway: a name if another capital follows, or if no dictionary has it.
    proper = token.capital and not shouting and (not token.first or leads or text not in words.vocabulary)
    before = next((item.text for item in reversed(tokens[:at]) if item.text not in _ARTICLES), "")
    built.words.append(Word(text, key_of(text), name=proper, before=before, acronym=acronym))
    return 1
