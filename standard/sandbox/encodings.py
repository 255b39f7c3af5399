"""Prevents: an instruction that stands in a passage as base64, hex or Morse, and that a model reads all the same.

`spell_out` replaces each encoded stretch that holds readable text by that text, however deep the encodings are nested;
what holds no text (images, checksums, keys, identifiers) stays as it is. Every level of these encodings makes text
shorter, so the work is linear in the length of the input whatever the depth.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from standard.sandbox.readable import as_packed, as_text, known_share, word_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEPTH_LIMIT = 8
"""Encodings within encodings that are looked into; deeper nesting is evidence by itself."""
LONGEST_RUN = 1_048_576
"""Longest encoded stretch that is decoded, in code points: the longest text that is scanned at all."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """An encoded stretch: `start` and `end` in the text it was found in, what it says, and the name of the encoding."""

    start: int
    end: int
    text: str
    encoding: str


class NestedTooDeep(Exception):
    """Encodings are nested deeper than DEPTH_LIMIT."""


class RunTooLong(Exception):
    """An encoded stretch is longer than LONGEST_RUN, and does not begin as an image or another binary file does."""


@dataclass(frozen=True, slots=True)
class _Encoding:
    name: str
    hint: re.Pattern[str] | str  # cheap: without a hit there is none of it in the text
    runs: Callable[[str], Iterator[tuple[int, int]]]
    decode: Callable[[str], str | None]


def find_encoded(text: str, depth: int = 0) -> list[Decoded]:
    """Encoded stretches of `text` that hold readable text, in order, without overlaps; nested ones decoded to the end.

    Raises NestedTooDeep and RunTooLong.
    """
    found: list[Decoded] = []
    for encoding in _ENCODINGS:
        if not (encoding.hint in text if isinstance(encoding.hint, str) else encoding.hint.search(text)):
            continue
        for start, end in encoding.runs(text):
            if end - start > LONGEST_RUN:
                if encoding.name in _LOOSE or _is_binary_file(text[start : start + 64]):
                    continue
                raise RunTooLong
            said = encoding.decode(text[start:end])
            if said is None:
                continue
            inner = _inner(said, depth)
            if inner is not None:
                found.append(Decoded(start, end, inner, encoding.name))
    return _without_overlaps(found)


def spell_out(text: str, depth: int = 0) -> tuple[str, list[Decoded]]:
    """`text` with every encoded stretch replaced by what it says, and those stretches. Raises as `find_encoded`."""
    found = find_encoded(text, depth)
    if not found:
        return text, found
    pieces: list[str] = []
    at = 0
    for item in found:
        pieces += [text[at : item.start], item.text]
        at = item.end
    return "".join(pieces) + text[at:], found


def _inner(said: str, depth: int) -> str | None:
    """What a decoded text says once the encodings within it are read; None where it is no text after all."""
    if depth >= DEPTH_LIMIT:
        if _holds_encoded(said):
            raise NestedTooDeep
        return said if _is_text(said) else None
    spelled, found = spell_out(said, depth + 1)
    return spelled if found or _is_text(said) else None


def _holds_encoded(text: str) -> bool:
    """Whether there is any encoded stretch in `text`, without looking into it."""
    return any(
        encoding.decode(text[start:end]) is not None for encoding in _ENCODINGS for start, end in encoding.runs(text)
    )


def _is_text(text: str) -> bool:
    return as_text(text.encode("utf-8", "replace")) is not None


def _without_overlaps(found: list[Decoded]) -> list[Decoded]:
    """The longest of those that overlap."""
    found.sort(key=lambda item: (item.start, -item.end))
    kept: list[Decoded] = []
    for item in found:
        if kept and item.start < kept[-1].end:
            if item.end - item.start > kept[-1].end - kept[-1].start:
                kept[-1] = item
        else:
            kept.append(item)
    return kept


_LOOSE = frozenset({"base85", "morse", "binary", "decimal"})
"""Encodings whose runs look like tables, rules of dashes and other text, and which say nothing at such a length."""
_MAGIC = (
    b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"II*\x00", b"MM\x00*", b"%PDF-", b"PK\x03\x04",
    b"\x1f\x8b", b"\x00\x00\x01\x00", b"wOFF", b"wOF2", b"OggS", b"ID3", b"7z\xbc\xaf", b"\x7fELF",
)  # fmt: skip


def _is_binary_file(head: str) -> bool:
    """Whether a base64 run begins as images, fonts, archives and sound do."""
    try:
        data = base64.b64decode(head[: len(head) // 4 * 4], validate=True)
    except (binascii.Error, ValueError):
        return False
    return data.startswith(_MAGIC) or data[4:8] == b"ftyp"


def _text_or_packed(data: bytes) -> str | None:
    return as_text(data) or as_packed(data)


def _base64(run: str) -> str | None:
    body = re.sub(r"\s", "", run).rstrip("=").replace("-", "+").replace("_", "/")
    if body.isalpha() and (body.islower() or body.isupper() or body.istitle()):
        return None  # a long word
    body = body[: len(body) - (len(body) % 4 == 1)]
    try:
        return _text_or_packed(base64.b64decode(body + "=" * (-len(body) % 4), validate=True))
    except (binascii.Error, ValueError):
        return None


def _base32(run: str) -> str | None:
    body = run.rstrip("=")
    if body.isalpha() and len(body) < 24:
        return None
    body = body[: len(body) - {1: 1, 3: 1, 6: 1}.get(len(body) % 8, 0)]
    try:
        return _text_or_packed(base64.b32decode(body + "=" * (-len(body) % 8)))
    except (binascii.Error, ValueError):
        return None


_NOT_HEX = re.compile(r"0x|\\x|[^0-9a-fA-F]")


def _hex(run: str) -> str | None:
    digits = _NOT_HEX.sub("", run)
    return _text_or_packed(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _binary(run: str) -> str | None:
    bits = re.sub(r"[^01]", "", run)
    for size in (8, 7):
        if len(bits) % size == 0:
            said = as_text(bytes(int(bits[at : at + size], 2) for at in range(0, len(bits), size)))
            if said is not None:
                return said
    return None


def _decimal(run: str) -> str | None:
    numbers = [int(number) for number in re.findall(r"\d+", run)]
    return as_text(bytes(numbers)) if all(9 <= number < 127 for number in numbers) else None


def _octal(run: str) -> str | None:
    numbers = [int(number, 8) for number in re.findall(r"[0-7]+", run)]
    return as_text(bytes(numbers)) if all(number < 256 for number in numbers) else None


def _percent(run: str) -> str | None:
    if "://" in run:
        return None  # an address: its escapes are a matter of course
    return _escaped(run, unquote_to_bytes(run).decode("utf-8", "replace"))


def _quoted_printable(run: str) -> str | None:
    return _text_or_packed(binascii.a2b_qp(run.encode("ascii", "replace")))


_BACKSLASH = re.compile(r"\\u\{([0-9a-fA-F]{1,6})\}|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\x([0-9a-fA-F]{2})")


def _backslash(run: str) -> str | None:
    def sign(match: re.Match[str]) -> str:
        code = int(next(group for group in match.groups() if group), 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"

    return _escaped(run, _BACKSLASH.sub(sign, run))


_NESTED_AMPERSAND = re.compile(r"&(?:amp;|#0*38;|#x0*26;)+", re.IGNORECASE)


def unescape(text: str) -> str:
    """Resolve HTML entities, nested ones (&amp;#73;) as well, in linear time."""
    return html.unescape(_NESTED_AMPERSAND.sub("&", text)) if "&" in text else text


def _entities(run: str) -> str | None:
    return _escaped(run, unescape(run))


def _escaped(run: str, said: str) -> str | None:
    """`said`, where most of it was hidden by escapes of letters; escapes of signs are how such text is written."""
    hidden = sum(sign.isalpha() for sign in said) - sum(sign.isalpha() for sign in _ESCAPE.sub("", run))
    if hidden < 3 and not (hidden >= 0 and said.count(" ") >= 2 and "%20" in run):
        return None
    return said if said.isprintable() or "\n" in said else None


_ESCAPE = re.compile(
    r"%[0-9a-fA-F]{2}|\\u\{[0-9a-fA-F]{1,6}\}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\x[0-9a-fA-F]{2}"
    r"|&(?:amp;)*(?:#[0-9]{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});"
)


def _ascii85(run: str) -> str | None:
    try:
        return _text_or_packed(base64.a85decode(run[2:-2], ignorechars=b" \t\n\r\v"))
    except ValueError:
        return None


def _base85(run: str) -> str | None:
    marks = sum(not sign.isalnum() for sign in run)
    if not 2 <= marks <= len(run) // 2 or len(run) > 8192:
        return None
    for cut in range(3):  # a full stop of the sentence may have been taken along
        try:
            said = as_text(base64.b85decode(run[: len(run) - cut]))
        except ValueError:
            continue
        if said is not None and known_share(said) > 0.3:
            return said
    return None


_MORSE = {
    ".-": "a", "-...": "b", "-.-.": "c", "-..": "d", ".": "e", "..-.": "f", "--.": "g", "....": "h", "..": "i",
    ".---": "j", "-.-": "k", ".-..": "l", "--": "m", "-.": "n", "---": "o", ".--.": "p", "--.-": "q", ".-.": "r",
    "...": "s", "-": "t", "..-": "u", "...-": "v", ".--": "w", "-..-": "x", "-.--": "y", "--..": "z", "-----": "0",
    ".----": "1", "..---": "2", "...--": "3", "....-": "4", ".....": "5", "-....": "6", "--...": "7", "---..": "8",
    "----.": "9", ".-.-.-": ".", "--..--": ",", "..--..": "?", "-..-.": "/", ".--.-.": "@", "..--.-": "_",
    "---...": ":", "-.-.--": "!", "-....-": "-",
}  # fmt: skip


def _morse(run: str) -> str | None:
    run = run.replace("·", ".").replace("•", ".").replace("–", "-").replace("—", "-").replace("−", "-")
    words = re.split(r"\s*[/|]\s*|\s{3,}|\n", run.strip())
    said = " ".join("".join(_MORSE.get(code, "�") for code in word.split()) for word in words if word)
    if "�" in said or len(said) < 6:
        return None
    return said if known_share(said) >= 0.5 and (word_count(said) > 1 or len(said) > 8) else None


def _matches(pattern: str) -> Callable[[str], Iterator[tuple[int, int]]]:
    compiled = re.compile(pattern)

    def runs(text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in compiled.finditer(text))

    return runs


_GAP = re.compile(r"[^\s\"'<>()\[\]\\%&;]{0,12} ?[^\s\"'<>()\[\]\\%&;]{0,12}")
_AFTER = re.compile(r"[^\s\"'<>()\[\]]{0,64}")
_EDGES = " \n\t\"'<>()[]"
_LONGEST_ADDRESS = 2048


def _clusters(escape: str, least: int) -> Callable[[str], Iterator[tuple[int, int]]]:
    """Runs of at least `least` escapes with few ordinary signs between them, with the words they begin and end in."""
    compiled = re.compile(escape)

    def runs(text: str) -> Iterator[tuple[int, int]]:
        start = end = count = 0
        for match in compiled.finditer(text):
            if count and not _GAP.fullmatch(text, end, match.start()):
                if count >= least:
                    yield _widened(text, start, end)
                count = 0
            if not count:
                start = match.start()
            count += 1
            end = match.end()
        if count >= least:
            yield _widened(text, start, end)

    return runs


def _widened(text: str, start: int, end: int) -> tuple[int, int]:
    """The stretch with the word it begins and ends in; an address from its beginning."""
    floor = max(0, start - _LONGEST_ADDRESS)
    word = max(floor, *(text.rfind(edge, floor, start) + 1 for edge in _EDGES))
    after = _AFTER.match(text, end)
    if start - word <= 64 or "://" in text[word:start]:
        start = word
    return start, after.end() if after else end


_ENTITY = r"&(?:amp;)*(?:#[0-9]{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});"
_BACKSLASHED = r"\\u\{[0-9a-fA-F]{1,6}\}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\x[0-9a-fA-F]{2}"
_MARK = r"[.\-·•–—−]{1,6}"
_PAIR = r"(?:0x|\\x)?[0-9a-fA-F]{2}"
_ENCODINGS = (
    _Encoding("entities", "&", _clusters(_ENTITY, 3), _entities),
    _Encoding("percent", "%", _clusters("%[0-9a-fA-F]{2}", 2), _percent),
    _Encoding("escapes", "\\", _clusters(_BACKSLASHED, 3), _backslash),
    _Encoding("octal", "\\", _matches(r"(?:\\[0-7]{3}){4,}"), _octal),
    _Encoding("quoted-printable", "=", _matches(r"(?:=[0-9A-F]{2}){4,}"), _quoted_printable),
    _Encoding("ascii85", "<~", _matches(r"<~[!-u\sz]{10,10000}?~>"), _ascii85),
    _Encoding(
        "morse",
        re.compile(rf"(?:{_MARK}[ /|]+){{2}}{_MARK}"),
        _matches(rf"(?<!\S)(?:{_MARK}[ /|\n]{{1,3}}){{4,}}{_MARK}"),
        _morse,
    ),
    _Encoding("binary", re.compile("[01]{7}"), _matches(r"(?:[01]{7,8}[ ,]{0,2}){4,}"), _binary),
    _Encoding(
        "decimal",
        re.compile(r"(?:\d{2,3}[ ,;]{1,2}){2}"),
        _matches(r"(?<!\d)(?:\d{2,3}[ ,;]{1,2}){7,}\d{2,3}(?!\d)"),
        _decimal,
    ),
    _Encoding(
        "hex",
        re.compile(rf"[0-9a-fA-F]{{2}}(?:[ :,;-]{{0,2}}{_PAIR}){{4}}"),
        _matches(rf"(?<![0-9A-Za-z])(?:{_PAIR}[ :,;-]{{0,2}}){{8,}}"),
        _hex,
    ),
    _Encoding("base32", re.compile("[A-Z2-7]{16}"), _matches(r"(?<![A-Za-z0-9])[A-Z2-7]{16,}={0,6}"), _base32),
    _Encoding(
        "base64",
        re.compile(r"[A-Za-z0-9+/_-]{16}"),
        _matches(r"(?:[A-Za-z0-9+/]{60,76}\n)+[A-Za-z0-9+/]{2,76}={0,2}|[A-Za-z0-9+/_-]{16,}={0,2}"),
        _base64,
    ),
    _Encoding(
        "base85", re.compile(r"[!-~]{20}"), _matches(r"(?<!\S)[0-9A-Za-z!#$%&()*+\-;<=>?@^_`{|}~.]{20,}(?!\S)"), _base85
    ),
)
