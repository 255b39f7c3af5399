"""A query taken apart into its facts: numbers, units, dates, negation, scope, modality, what is asked for, and words.

English is what the lexicon knows. In other languages numbers, codes and names are still found, and every other word
stands for itself.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache

from agentic.coverage import word_set
from agentic.same_need.clock import spell_times
from agentic.same_need.lexicon import LONGEST_PHRASE, Lexicon, key_of, lexicon

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
_ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_WRITTEN_DATE = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})")
_PLAIN = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_SCALED = re.compile(r"(\d+(?:[.,]\d+)*)(k|m|bn|mn)")
_WITH_UNIT = re.compile(r"(\d+(?:[.,]\d+)*)(kg|mg|g|t|km|m|cm|mm|l|ml|kwh|kw|h|gb|mb|tb|°c|°f|mph|kmh)")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_DECADE = re.compile(r"(\d{3}0|[3-9]0)s")
_YEAR = re.compile(r"1\d{3}|20\d{2}")
_WITH_WORD = re.compile(r"(\d+(?:[.,]\d+)*)-([a-z]+)")
_QUARTER = re.compile(r"[qh][1-4]")
_FISCAL = re.compile(r"fy(\d{2}|\d{4})")
_VERSION = re.compile(r"v(\d+(?:\.\d+)*)")
_ROMAN = re.compile(r"(?=[IVX])X{0,3}(?:IX|IV|V?I{0,3})")
_ROMAN_SIGNS = {"I": 1, "V": 5, "X": 10}
_DECADES = {
    name: decade
    for decade, name in enumerate(
        ("twenties", "thirties", "forties", "fifties", "sixties", "seventies", "eighties", "nineties"), 2
    )
}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_OVER, _UNDER = frozenset({"over", "above", "beyond"}), frozenset({"under", "below"})
_SCALES = {"k": 1e3, "m": 1e6, "mn": 1e6, "bn": 1e9}
_BASES = {
    "mg": ("kg", 1e-6),
    "t": ("kg", 1000.0),
    "g": ("kg", 0.001),
    "km": ("m", 1000.0),
    "cm": ("m", 0.01),
    "mm": ("m", 0.001),
    "ml": ("litre", 0.001),
}
_MEASURES = frozenset({"long", "far", "tall", "size", "weight", "fast", "depth", "width", "thick"})
_ABLE = frozenset({"can", "may"})
_LETTERS = {"g": "grams", "m": "metres", "l": "litres", "t": "tonnes", "h": "hours", "min": "minutes"}
_MONTHS = {"month": 1, "months": 1, "year": 12, "years": 12}
_MONEY = frozenset({"eur", "usd", "gbp"})
_ENCLITICS = {"ll": "will", "re": "are", "ve": "have"}
_CLOCK = frozenset({"am", "pm"})
_ASKING = frozenset({"what", "which", "how"})
_ARTICLES = frozenset({"the", "a", "an", "their", "its", "our", "your", "my", "his", "her"})
MAX_TOKENS = 120
"""Tokens of a query that are read; a need is told in fewer."""


@dataclass(frozen=True, slots=True)
class Word:
    """A content word. `key` is what it is compared by; `name`: it looks like a proper name.

    `before` is the word that stands before it, articles aside.
    """

    text: str
    key: str
    name: bool
    before: str = ""
    acronym: bool = False


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


@dataclass(slots=True)
class _Builder:
    words: list[Word] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    units: set[str] = field(default_factory=set)
    negations: int = 0
    quantifiers: set[str] = field(default_factory=set)
    modality: set[str] = field(default_factory=set)
    tenses: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    written: str
    first: bool

    @property
    def capital(self) -> bool:
        return self.written[:1].isupper()


@lru_cache(maxsize=512)
def analyse(query: str) -> Analysis:
    """Take a query apart."""
    words = lexicon()
    shouting = query.isupper()
    tokens = _replace_phrases(_tokens(query), words, shouting=shouting)
    built = _Builder()
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


def _perfect(tokens: list[_Token], words: Lexicon) -> bool:
    """Has it been done: "has … rejected", "have … written"."""
    texts = _spoken([token.text for token in tokens])
    if texts[:1] not in (["has"], ["have"]) or not _AUXILIARIES.isdisjoint(texts[1:]):
        return False
    return any(text.endswith("ed") or words.irregular.get(text, text) != text for text in texts[2:])


def _past_conditional(tokens: list[_Token]) -> set[str]:
    """What might have been: "could … have"."""
    texts = [token.text for token in tokens]
    for modal in ("could", "would", "should", "might"):
        if modal in texts and "have" in texts[texts.index(modal) :]:
            return {"could_have"}
    return set()


def _tokens(query: str) -> list[_Token]:
    text = _without_glosses(_NUMERO.sub("number", unicodedata.normalize("NFKC", query).replace("’", "'")))
    text = spell_times(text)
    found: list[_Token] = []
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
                found.append(_Token(part.casefold(), part, first))
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


def _replace_phrases(tokens: list[_Token], words: Lexicon, *, shouting: bool) -> list[_Token]:
    """Put single signs in the place of phrases, and parts in the place of words that hold several."""
    out: list[_Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        size = 0
        if token.text in words.first_words:
            for length in range(min(LONGEST_PHRASE, len(tokens) - at), 1, -1):
                place = words.phrases.get(" ".join(item.text for item in tokens[at : at + length]))
                if place is not None:
                    out += [_Token(part, part, token.first) for part in place]
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
                out += [_Token(part, part, token.first) for part in place]
            else:
                out.append(token)
        at += size
    return out


def _take(tokens: list[_Token], at: int, built: _Builder, words: Lexicon, *, shouting: bool) -> int:
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
    taken = _take_number(tokens, at, built, words)
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


def _take_number(tokens: list[_Token], at: int, built: _Builder, words: Lexicon) -> int:
    """Numbers in figures and words, dates, quarters, codes; how many tokens it took, 0 for none of these."""
    token = tokens[at]
    text = token.text
    following = tokens[at + 1].text if at + 1 < len(tokens) else ""
    if text in {"year", "years"} and _YEAR.fullmatch(following):
        return 1  # "in the year 2019" is "in 2019"
    figures = following[:1].isdigit() or following in {"€", "$", "£"} or following in words.numbers
    if figures and text in _OVER | _UNDER:
        bound = "exceeding" if text in _OVER else "short_of"
        built.words.append(Word(bound, key_of(bound), name=False))
        return 1
    if text in _DECADES and at and tokens[at - 1].text in {"the", "early", "mid", "late"}:
        built.numbers.append(f"decade:19{_DECADES[text]}0")
        return 1
    if any(sign.isdigit() for sign in text):
        return _with_duration(tokens, at, built, words, _take_figures(tokens, at, built, words))
    if text in {"€", "$", "£"}:
        built.units.add(words.units[text])
        return 1
    if text in words.ordinals or text in {"last", "next", "previous"}:
        if following in {"quarter", "half"}:
            built.numbers.append(f"{'q' if following == 'quarter' else 'h'}:{words.ordinals.get(text, text)}")
            return 2
        return _take_ordinal(words.ordinals[text], following, built) if text in words.ordinals else 0
    if text in words.months and _is_month(tokens, at):
        built.numbers.append(f"month:{words.months[text]}")
        return 1
    if text in _CLOCK and at and tokens[at - 1].text[0].isdigit():
        built.numbers.append(text)
        return 1
    if text in words.numbers:
        return _with_duration(tokens, at, built, words, _take_number_words(tokens, at, built, words))
    named = at > 0 and tokens[at - 1].capital and tokens[at - 1].text not in words.fillers
    if named and token.written and _ROMAN.fullmatch(token.written):
        built.numbers.append(_number(_roman(token.written)))
        return 1
    return 0


def _with_duration(tokens: list[_Token], at: int, built: _Builder, words: Lexicon, taken: int) -> int:
    """A number just taken in the base of the unit behind it: half an hour is 30 minutes, 3 tonnes are 3000 kg."""
    if at + taken >= len(tokens) or _ORDINAL.fullmatch(tokens[at].text):
        return taken
    unit, money = tokens[at + taken].text, not built.units.isdisjoint(_MONEY)
    unit = unit if tokens[at + taken].written != unit or (unit == "m" and money) else _LETTERS.get(unit, unit)
    seconds = _SECONDS.get(unit if unit == "day" else words.units.get(unit, ""))
    last = built.numbers[-1] if built.numbers else ""
    base = _BASES.get(words.units.get(unit, ""))
    if base is not None and last.startswith("n:"):
        built.numbers[-1] = _number(float(last[2:]) * base[1])
        built.units.add(base[0])
        return taken + 1
    lettered = unit != tokens[at + taken].text and unit in words.units and seconds is None
    if lettered and last.startswith("n:"):
        built.units.add(words.units[unit])
        return taken + 1
    if unit == "m" and money and last.startswith("n:"):
        built.numbers[-1] = _number(float(last[2:]) * _SCALES["m"])
        return taken + 1
    if unit in _MONTHS and last.startswith("n:") and float(last[2:]) < 1000:
        built.numbers[-1] = f"months:{float(last[2:]) * _MONTHS[unit]:g}"
        return taken + 1
    if seconds is None or not last.startswith("n:"):
        return taken
    built.numbers[-1] = f"seconds:{float(last[2:]) * seconds:g}"
    return taken + 1


def _take_ordinal(rank: int, following: str, built: _Builder) -> int:
    """A rank, or a century as the years it has in common: the 16th century, the 1500s."""
    if following in {"century", "centuries"}:
        built.numbers.append(f"decade:{(rank - 1) * 100}")
        return 2
    built.numbers.append(f"n:{rank}")
    return 1


def _roman(written: str) -> int:
    values = [_ROMAN_SIGNS[sign] for sign in written]
    return sum(-one if one < two else one for one, two in zip(values, [*values[1:], 0], strict=True))


def _is_month(tokens: list[_Token], at: int) -> bool:
    """Is "May" or "March" here a month, not a verb? Written large within the query, or beside a number or "in"."""
    token = tokens[at]
    if token.text not in {"may", "march", "mar", "sun", "sat"}:
        return True
    before = tokens[at - 1].text if at else ""
    after = tokens[at + 1].text if at + 1 < len(tokens) else ""
    beside = (
        before[:1].isdigit() or after[:1].isdigit() or before in {"in", "of", "since", "until", "by", "last", "next"}
    )
    return beside or (token.capital and not token.first)


def _take_number_words(tokens: list[_Token], at: int, built: _Builder, words: Lexicon) -> int:
    """Numbers in words: two, twenty-one, three hundred, a dozen."""
    total, current, size = 0.0, 0.0, 0
    while at + size < len(tokens):
        text = tokens[at + size].text
        if text in words.ordinals and size and current % 10 == 0 and words.ordinals[text] < 10:
            current += words.ordinals[text]
            size += 1
            break
        value = words.numbers.get(text)
        if value is None:
            break
        if value >= 1000:
            total += max(current, 1.0) * value
            current = 0.0
        elif value == 100:
            current = max(current, 1.0) * 100
        else:
            current += value
        size += 1
    built.numbers.append(_number(total + current))
    return size


def _take_figures(tokens: list[_Token], at: int, built: _Builder, words: Lexicon) -> int:
    text = tokens[at].text
    following = tokens[at + 1].text if at + 1 < len(tokens) else ""
    if match := _ISO_DATE.fullmatch(text):
        built.numbers += [_number(int(match[1])), f"month:{int(match[2])}", _number(int(match[3]))]
    elif (match := _WRITTEN_DATE.fullmatch(text)) and (order := _day_and_month(match[1], match[2], match[0])):
        built.numbers += [_number(int(match[3])), f"month:{order[1]}", _number(order[0])]
    elif _QUARTER.fullmatch(text):
        built.numbers.append(f"{text[0]}:{text[1]}")
    elif match := _FISCAL.fullmatch(text):
        year = match.group(1)
        built.numbers.append(_number(int(year) if len(year) == 4 else 2000 + int(year)))
        built.words.append(Word("fiscal", key_of("fiscal"), name=False))
    elif match := _VERSION.fullmatch(text):
        built.numbers.append(_number(float(match.group(1))) if match.group(1).count(".") < 2 else text)
        built.words.append(Word("version", key_of("version"), name=False))
    elif match := _DECADE.fullmatch(text):
        years = match.group(1)
        built.numbers.append(f"decade:{years if len(years) == 4 else f'19{years}'}")
    elif match := _ORDINAL.fullmatch(text):
        return _take_ordinal(int(match.group(1)), following, built)
    elif match := _SCALED.fullmatch(text):
        built.numbers.append(_number(_value(match.group(1)) * _SCALES[match.group(2)]))
    elif match := _WITH_UNIT.fullmatch(text):
        unit, factor = _BASES.get(match.group(2), (words.units.get(match.group(2), match.group(2)), 1.0))
        value = _value(match.group(1)) * factor
        seconds = _SECONDS.get(unit)
        built.numbers.append(_number(value) if seconds is None else f"seconds:{value * seconds:g}")
        if seconds is None:
            built.units.add(unit)
    elif _PLAIN.fullmatch(text):
        scale = words.numbers.get(following, 0.0)
        if scale >= 1000 or following == "dozen":
            built.numbers.append(_number(_value(text) * scale))
            return 2
        built.numbers.append(_number(_value(text)))
    else:
        built.numbers.append(f"code:{text}")
    return 1


def _day_and_month(first: str, second: str, written: str) -> tuple[int, int] | None:
    """Day and month of a date in figures: with points the day comes first, else only where one of them is no month."""
    one, two = int(first), int(second)
    if 1 <= two <= 12 and 1 <= one <= 31 and ("." in written or one > 12 or one == two):
        return one, two
    return (two, one) if 1 <= one <= 12 < two <= 31 else None


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _number(value: float) -> str:
    return f"n:{value:g}" if value < 1e15 else f"n:{value}"
