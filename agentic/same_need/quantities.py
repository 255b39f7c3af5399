"""Numbers in figures and words, dates, quarters, centuries, durations and measures, each in one form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentic.same_need.lexicon import key_of
from agentic.same_need.parts import Builder, Token, Word

if TYPE_CHECKING:
    from agentic.same_need.lexicon import Lexicon

_ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_WRITTEN_DATE = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})")
_PLAIN = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_SCALED = re.compile(r"(\d+(?:[.,]\d+)*)(k|m|bn|mn)")
_WITH_UNIT = re.compile(r"(\d+(?:[.,]\d+)*)(kg|mg|g|t|km|m|cm|mm|l|ml|kwh|kw|h|gb|mb|tb|°c|°f|mph|kmh)")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_DECADE = re.compile(r"(\d{3}0|[3-9]0)s")
_YEAR = re.compile(r"1\d{3}|20\d{2}")
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
_LETTERS = {"g": "grams", "m": "metres", "l": "litres", "t": "tonnes", "h": "hours", "min": "minutes"}
_MONTHS = {"month": 1, "months": 1, "year": 12, "years": 12}
_MONEY = frozenset({"eur", "usd", "gbp"})
_CLOCK = frozenset({"am", "pm"})


def take_number(tokens: list[Token], at: int, built: Builder, words: Lexicon) -> int:
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


def _with_duration(tokens: list[Token], at: int, built: Builder, words: Lexicon, taken: int) -> int:
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


def _take_ordinal(rank: int, following: str, built: Builder) -> int:
    """A rank, or a century as the years it has in common: the 16th century, the 1500s."""
    if following in {"century", "centuries"}:
        built.numbers.append(f"decade:{(rank - 1) * 100}")
        return 2
    built.numbers.append(f"n:{rank}")
    return 1


def _roman(written: str) -> int:
    values = [_ROMAN_SIGNS[sign] for sign in written]
    return sum(-one if one < two else one for one, two in zip(values, [*values[1:], 0], strict=True))


def _is_month(tokens: list[Token], at: int) -> bool:
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


def _take_number_words(tokens: list[Token], at: int, built: Builder, words: Lexicon) -> int:
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


def _take_figures(tokens: list[Token], at: int, built: Builder, words: Lexicon) -> int:
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
