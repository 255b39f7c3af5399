"""Prevents: the system prompt in an answer, in whatever shape a document talks the model into.

A canary (a random word of 128 bits) stands at both ends of the system prompt. Wherever text leaves for a user, a log or
a tool it is looked for: verbatim, in capitals, spaced out, backwards, in base64 at any alignment, hex, ROT13 and
escapes. A stretch of the prompt itself is looked for as well, whatever stands between its letters.
"""

from __future__ import annotations

import base64
import codecs
import re
import secrets
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standard.sandbox.confusables import load_confusables
from standard.sandbox.prompt import PromptText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CANARY_BYTES = 16
LEAK_LENGTH = 40
"""Letters and digits in a row that an answer may not share with the system prompt: some eight words."""
SHORT_PIECE = 6
"""Letters that ordinary prose may share with the prompt; it rarely shares more."""
_GRAM = 16
_NO_LETTERS = re.compile(r"[^0-9a-z]+")
_INSIDE_BASE64 = 3  # signs at either end of a base64 text that depend on what stands around it


@dataclass(frozen=True, slots=True)
class Secret:
    """What must not get out: a canary, and the words of the system prompt it guards. Make one with `guard_prompt`.

    `needles` are the canary's shapes, `prefixes` their beginnings, of up to `longest` letters. `grams` and `pieces` are
    parts of the prompt's letters, of 16 and of up to SHORT_PIECE.
    """

    canary: str
    needles: frozenset[str]
    prefixes: frozenset[str]
    prompt: str
    grams: frozenset[str]
    longest: int
    pieces: frozenset[str]


def draw_canary() -> str:
    """A fresh canary. One a process is enough, and keeps the prompt's beginning the same for the model's cache."""
    return secrets.token_hex(CANARY_BYTES)


def guard_prompt(prompt: PromptText, canary: str) -> tuple[PromptText, Secret]:
    """The system prompt with the canary at both ends, and what to look for in everything that leaves."""
    guarded = PromptText(f"[{canary}]\n{prompt.value}\n[{canary}]")
    return guarded, secret_of(canary, prompt.value)


def secret_of(canary: str, prompt: str = "") -> Secret:
    """What to look for: every shape of the canary, and stretches of `prompt` (may be empty)."""
    shapes = sorted(dict.fromkeys(_shapes(canary)), key=len)
    needles: list[str] = []
    for shape in shapes:
        if not any(needle in shape for needle in needles):  # a shape that holds a shorter one is found by that
            needles.append(shape)
    letters = squeeze(prompt)
    return Secret(
        canary=canary,
        needles=frozenset(needles),
        prefixes=frozenset(needle[:length] for needle in needles for length in range(1, len(needle))),
        prompt=letters,
        grams=frozenset(letters[at : at + _GRAM] for at in range(len(letters) - _GRAM + 1)),
        longest=max(map(len, needles)) - 1,
        pieces=frozenset(
            letters[at : at + length] for length in range(1, SHORT_PIECE + 1) for at in range(len(letters) - length + 1)
        ),
    )


def squeeze(text: str) -> str:
    """Letters and digits of `text` in lower case, other styles and lookalikes as plain ones: what is compared."""
    if text.isascii():
        return _NO_LETTERS.sub("", text.lower())
    return "".join(sign for sign, _ in squeezed(text))


def squeezed(text: str) -> Iterable[tuple[str, int]]:
    """Letters and digits as `squeeze` gives them, each with its place in `text`."""
    if text.isascii():
        return [(sign, place) for place, sign in enumerate(text.lower()) if sign.isalnum()]
    return _squeezed(text)


def _squeezed(text: str) -> Iterator[tuple[str, int]]:
    lookalikes = load_confusables()
    for place, sign in enumerate(text):
        if sign.isascii():
            if sign.isalnum():
                yield sign.lower(), place
        elif 0xE0020 <= ord(sign) < 0xE007F:  # tag characters
            if chr(ord(sign) - 0xE0000).isalnum():
                yield chr(ord(sign) - 0xE0000).lower(), place
        else:
            for plain in lookalikes.get(ord(sign)) or unicodedata.normalize("NFKC", sign):
                if plain.isalnum():
                    yield plain.lower()[:1], place


def _shapes(canary: str) -> Iterable[str]:
    """The canary as it may be written, each squeezed to letters and digits in lower case."""
    for said in (canary, canary[::-1]):
        for written in (said.lower(), said.upper()):
            data = written.encode()
            yield squeeze(written)
            yield data.hex()
            yield codecs.encode(written, "rot13").lower()
            yield "".join(f"x{byte:02x}" for byte in data)  # \x61\x62, &#x61;&#x62;
            yield "".join(f"u{byte:04x}" for byte in data)
            yield "".join(str(byte) for byte in data)  # 97 98, &#97;&#98;
            yield squeeze(base64.b32encode(data).decode())
            for shift in range(3):
                coded = base64.b64encode(b"\0" * shift + data + b"\0" * ((3 - shift - len(data)) % 3)).decode()
                start = 0 if shift == 0 else _INSIDE_BASE64 + 1
                yield squeeze(coded[start : len(coded) - _INSIDE_BASE64 - 1])


def leak_in(text: str, secret: Secret) -> str:
    """What of the secret stands in a whole `text`: "canary", "system-prompt", or an empty string.

    For everything that is not streamed: queries, tool arguments, plans, notices, errors.
    """
    letters = squeeze(text)
    if any(needle in letters for needle in secret.needles):
        return "canary"
    return "system-prompt" if longest_overlap(letters, secret) is not None else ""


def holds_canary(text: str, secret: Secret) -> bool:
    """Whether the canary itself stands in a whole `text`, in any of its shapes."""
    letters = squeeze(text)
    return any(needle in letters for needle in secret.needles)


def longest_overlap(letters: str, secret: Secret, start: int = 0) -> tuple[int, int] | None:
    """The first stretch of at least LEAK_LENGTH squeezed letters that also stands in the prompt, as a span.

    Every stretch of that length holds one of the looked-up grams whole: they are taken at every 16th place. First is
    the stretch that begins first, so that a stream finds the same one as a whole.
    """
    if len(secret.prompt) < LEAK_LENGTH:
        return None
    at = start
    while at + _GRAM <= len(letters):
        if letters[at : at + _GRAM] in secret.grams:
            begins = _begins(letters, secret.prompt, at)
            if begins is not None:
                return begins, begins + LEAK_LENGTH
        at += _GRAM
    return None


def _begins(letters: str, prompt: str, at: int) -> int | None:
    """Where the first long enough stretch around the gram at `at` begins."""
    gram = letters[at : at + _GRAM]
    first: int | None = None
    place = prompt.find(gram)
    while place >= 0:
        left = 0
        while left < min(at, place) and letters[at - left - 1] == prompt[place - left - 1]:
            left += 1
        right = _GRAM
        most = min(len(letters) - at, len(prompt) - place, LEAK_LENGTH)
        while right < most and letters[at + right] == prompt[place + right]:
            right += 1
        if left + right >= LEAK_LENGTH and (first is None or at - left < first):
            first = at - left
        place = prompt.find(gram, place + 1)
    return first
