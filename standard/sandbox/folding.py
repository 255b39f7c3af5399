"""Prevents: an instruction written in letters that look like letters, or in an order that only looks like none.

Each fold turns one disguise back into plain text where the disguise is beyond doubt, and leaves everything else alone:
a Russian word stays Russian, an accent stays an accent, 4.5 stays 4.5. The result is what the scanner reads; prompts
and quotes keep the text as it was written.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

from standard.sandbox.confusables import load_confusables
from standard.sandbox.readable import known_share, word_count

if TYPE_CHECKING:
    from collections.abc import Callable

_SMALL_CAPITALS = dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘǫʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnopqrstuvwyz", strict=True))
_NEGATIVE_BLOCKS = ((0x1F150, 0x1F169), (0x1F170, 0x1F189))  # white on black: circled and squared capitals
_REGIONAL_RUN = re.compile("[\U0001f1e6-\U0001f1ff](?:[ -]?[\U0001f1e6-\U0001f1ff]){5,}")


@cache
def _styled() -> dict[int, str]:
    """Letters and digits that are another style of an ASCII one: full width, mathematical, circled, small capitals."""
    table = {ord(sign): plain for sign, plain in _SMALL_CAPITALS.items()}
    ranges = (
        (0x2100, 0x214F),
        (0x249C, 0x24E9),
        (0xFF10, 0xFF5A),
        (0x1D400, 0x1D7FF),
        (0x1F110, 0x1F12A),
        (0x1F130, 0x1F149),
    )
    for first, last in ranges:
        for code in range(first, last + 1):
            plain = unicodedata.normalize("NFKC", chr(code)).strip("()")
            if len(plain) == 1 and plain.isascii() and plain.isalnum():
                table[code] = plain
    for code in range(0xFF01, 0xFF5F):
        table.setdefault(code, chr(code - 0xFEE0))
    for first, last in _NEGATIVE_BLOCKS:
        table |= {code: chr(ord("A") + code - first) for code in range(first, last + 1)}
    return table


def fold_styles(text: str) -> str:
    """Letters of another style as plain ones; so are their full-width signs where they stand beside such letters."""
    if text.isascii():
        return text
    styled = _styled()
    if not any(ord(sign) in styled for sign in text):
        return text

    def plain(match: re.Match[str]) -> str:
        return match[0].translate(styled) if len(match[0]) > 1 else match[0]

    text = _STYLED_RUN.sub(plain, text)
    return _REGIONAL_RUN.sub(
        lambda match: "".join(chr(ord(sign) - 0x1F1E6 + 65) if ord(sign) >= 0x1F1E6 else "" for sign in match[0]), text
    )


_STYLED_LETTER = (
    "\u2100-\u214f\u249c-\u24e9\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff\U0001f110-\U0001f189"
    + "".join(_SMALL_CAPITALS)
)
_STYLED_SIGN = f"{_STYLED_LETTER}\uff01-\uff5e"
_STYLED_RUN = re.compile(f"[\uff01-\uff5e]{{0,40}}[{_STYLED_LETTER}](?:[{_STYLED_SIGN} \u3000]*[{_STYLED_SIGN}])?")

_MIXED_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def fold_lookalikes(text: str) -> str:
    """Words that mix Latin letters with lookalikes of other scripts, in Latin letters alone."""
    if text.isascii():
        return text
    table = load_confusables()
    latin = foreign = 0
    for sign in text:
        if sign.isascii():
            latin += sign.isalpha()
        elif ord(sign) in table and sign.isalpha():
            foreign += 1
        elif sign.isalpha() and not _is_latin(sign):
            foreign += 2
    if not foreign:
        return text
    mostly_latin = latin > 3 * foreign

    def plain(match: re.Match[str]) -> str:
        word = match[0]
        if word.isascii():
            return word
        others = [sign for sign in word if not sign.isascii() and sign.isalpha() and not _is_latin(sign)]
        foreign_signs = frozenset(others)
        if not others:
            return word
        ascii_letters = sum(sign.isascii() and sign.isalpha() for sign in word)
        if not all(ord(sign) in table for sign in others):
            strewn = all(sign.islower() or sign.isupper() for sign in others)
            if strewn and ascii_letters >= 3 and len(others) * 3 <= ascii_letters:  # ignΞore
                return "".join(table.get(ord(sign), "") if sign in foreign_signs else sign for sign in word)
            return word
        mixed = ascii_letters > 0 and (len(word) >= 4 or not all(_is_greek(sign) for sign in others))
        if mixed or (mostly_latin and len(word) > 1 and not any(_is_greek(sign) for sign in others)):
            return "".join(table.get(ord(sign), sign) if sign in foreign_signs else sign for sign in word)
        return word

    return _MIXED_WORD.sub(plain, text)


@cache
def _is_latin(sign: str) -> bool:
    return unicodedata.name(sign, "").startswith("LATIN")


def _is_greek(sign: str) -> bool:
    return "\u0370" <= sign <= "\u03ff"


_MARK = re.compile("[\u0300-\u036f\u20d0-\u20ff]")
_MARKED = "\u00c0-\u024f\u1e00-\u1eff"
# a word with a mark that composes with no letter, or of nothing but marked letters
_MARKED_WORD = re.compile(
    f"[^\\W\\d_]{{0,40}}[A-Za-z{_MARKED}][\u0300-\u036f\u20d0-\u20ff]+(?:[^\\W\\d_]|[\u0300-\u036f\u20d0-\u20ff])*"
    f"|(?<![^\\W\\d_])[{_MARKED}]{{2,}}(?![^\\W\\d_])"
)


def fold_marks(text: str) -> str:
    """Words with marks as no language writes them (struck, all dotted, Zalgo), without marks."""
    if text.isascii():
        return text
    composed = unicodedata.normalize("NFC", text) if _MARK.search(text) else text

    def bare(match: re.Match[str]) -> str:
        word = match[0]
        spread = unicodedata.normalize("NFD", word)
        letters = [sign for sign in spread if unicodedata.category(sign) != "Mn"]
        marks = len(spread) - len(letters)
        if _MARK.search(word):
            return "".join(letters) if marks * 2 >= len(letters) else word
        common = max(map(spread.count, set(spread) - set(letters)), default=0)
        return "".join(letters) if common >= len(letters) else word

    return _MARKED_WORD.sub(bare, composed)


_LONGEST_ABBREVIATION = 5
_SPACED = re.compile(
    r"(?<![^\W_])[^\W\d_](?:(?P<gap>[ .\-_*·•|/+~,\u00a0])[^\W\d_]){1}(?:(?P=gap){1,3}[^\W\d_]){1,}(?![^\W_])"
)


def fold_spacing(text: str, vocabulary: frozenset[str]) -> str:
    """Words written letter by letter (i g n o r e, i-g-n-o-r-e), joined; `vocabulary` tells where words end."""

    def joined(match: re.Match[str]) -> str:
        gap = match["gap"]
        parts = re.split(f"{re.escape(gap)}{{2,}}", match[0])
        words = ["".join(part.split(gap)) for part in parts]
        if len(words) == 1 and len(words[0]) > 8:
            words = _segmented(words[0], vocabulary)
        known = sum(len(word) for word in words if word.casefold() in vocabulary)
        letters = sum(map(len, words))
        if known * 10 < 6 * letters or (gap == "." and letters < _LONGEST_ABBREVIATION):
            return match[0]
        return " ".join(words)

    return _SPACED.sub(joined, text)


def _segmented(letters: str, vocabulary: frozenset[str]) -> list[str]:
    """Cut a run of letters into known words, longest total first; one word where that does not work out."""
    lower = letters.casefold()[:400]
    best: list[tuple[int, int]] = [(0, 0)]  # (letters in known words, start of the last piece)
    for end in range(1, len(lower) + 1):
        choice = (best[end - 1][0], end - 1)
        for start in range(max(0, end - 16), end):
            if lower[start:end] in vocabulary:
                size = end - start
                choice = max(choice, (best[start][0] + size * size, start))
        best.append(choice)
    words: list[str] = []
    end = len(lower)
    while end:
        start = best[end][1]
        words.append(letters[start:end])
        end = start
    words.reverse()
    return words


_LEET = str.maketrans("0134578@$!9|", "oieastbasigl")
_LEET_TOKEN = re.compile(r"[A-Za-z0-9@$!|]+")
_LEET_HINT = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]{1,30}[0134578@$!|]|[0134578@$!|]{1,30}[A-Za-z])")
_LEET_MIXED = re.compile(r"[A-Za-z]+[0134578@$!|][A-Za-z0-9@$!|]*|[0134578@$!|][0-9@$!|]*[A-Za-z][A-Za-z0-9@$!|]*")


def _leet(line: str) -> str:
    tokens = _LEET_TOKEN.findall(line)
    mixed = sum(1 for token in tokens if _LEET_MIXED.fullmatch(token))
    if mixed < 2:
        return line

    def plain(match: re.Match[str]) -> str:
        token = match[0]
        if token.isalpha() or (token.isdigit() and len(token) > 4):
            return token
        said = token.rstrip("!|").translate(_LEET) + token[len(token.rstrip("!|")) :]
        return said if known_share(said) else said.replace("i", "l") if known_share(said.replace("i", "l")) else said

    return _LEET_TOKEN.sub(plain, line)


_ROT13 = str.maketrans(
    "ABCDEFGHIJKLMabcdefghijklmNOPQRSTUVWXYZnopqrstuvwxyz", "NOPQRSTUVWXYZnopqrstuvwxyzABCDEFGHIJKLMabcdefghijklm"
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _shifts() -> list[tuple[str, Callable[[str], str]]]:
    def table(target: str) -> dict[int, int]:
        return str.maketrans(_LETTERS + _LETTERS.upper(), target + target.upper())

    ways: list[tuple[str, Callable[[str], str]]] = [("rot13", lambda line: line.translate(_ROT13))]
    ways.append(("reversed", lambda line: line[::-1]))
    ways.append(("reversed-words", lambda line: " ".join(word[::-1] for word in line.split(" "))))
    atbash = table(_LETTERS[::-1])
    ways.append(("atbash", lambda line: line.translate(atbash)))
    for shift in range(1, 26):
        if shift != 13:
            moved = table(_LETTERS[shift:] + _LETTERS[:shift])
            ways.append(("caesar", lambda line, moved=moved: line.translate(moved)))  # type: ignore[misc]
    return ways


_COMMON_WAYS = 3
"""The first ways are tried on every strange line; the others where its vowels are odd as well."""


@cache
def _ways() -> tuple[tuple[str, Callable[[str], str]], ...]:
    return tuple(_shifts())


_CLAUSE = re.compile(r"(?:[^\n:]|:(?! ))+")
_VOWEL = re.compile("[aeiouy]", re.IGNORECASE)
_SAMPLE = 160
_STRANGE, _PLAIN = 0.25, 0.6


def fold_ciphers(text: str) -> tuple[str, frozenset[str]]:
    """Lines and clauses that are English once letters are shifted, mirrored or read backwards, and the ways used."""
    used: set[str] = set()

    def plain(match: re.Match[str]) -> str:
        line = match[0]
        if len(line) < 10 or not line.isascii():
            return line
        sample = line[:_SAMPLE]
        before = known_share(sample)
        if _LEET_HINT.search(line):
            leet = _leet(line)
            if leet != line and known_share(leet) >= max(_PLAIN, before + 0.2):
                used.add("leet")
                return leet
        count = word_count(sample) if before <= _STRANGE else 0
        if count < 3:
            return line
        letters = sum(map(str.isalpha, sample))
        if letters < 12 or letters < 0.6 * len(sample):
            return line
        ways = _ways()
        if count < 5 or len(_VOWEL.findall(sample)) > 0.3 * letters:
            ways = ways[:_COMMON_WAYS]
        for name, way in ways:
            said = way(sample) if name != "reversed" else way(line)[:_SAMPLE]
            if known_share(said) >= _PLAIN:
                used.add(name)
                body = line.strip()
                return line.replace(body, way(body))
        return line

    return _CLAUSE.sub(plain, text), frozenset(used)
