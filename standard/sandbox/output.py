"""Prevents: an answer that gives away the system prompt, carries data off in an address, or hides text from its reader.

`OutputGuard` stands last, on the text a user will see (after source tags were taken out: what they stood between is
joined by then). Whether the text comes whole or in pieces, and wherever the pieces are cut, the same text comes out
and the same verdict. Text is held back while it may still become something that must not get out, so no part of a
canary is ever shown; after a block nothing follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from standard.domain.answer import Citation
from standard.sandbox.canary import LEAK_LENGTH, SHORT_PIECE, Secret, longest_overlap, squeeze, squeezed
from standard.sandbox.canonicalise import canonicalise
from standard.sandbox.urls import REMOVED, UrlPolicy, clean_word, defuse, tidy, violations

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_HELD = 16_384
"""Code points held back at most; an answer that needs more is blocked."""


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """How an answer fared. `reason` is "" (nothing was blocked), "canary", "system-prompt" or "held-too-long".

    `removed_links` counts addresses that were taken out.
    """

    reason: str = ""
    removed_links: int = 0

    @property
    def blocked(self) -> bool:
        """Whether the answer was cut off."""
        return bool(self.reason)


class OutputGuard:
    """Feed it an answer's text; it gives back what may be shown. One for each answer."""

    def __init__(self, secrets: Sequence[Secret], policy: UrlPolicy) -> None:
        self._secrets = _SecretStage(secrets)
        self._links = _LinkStage(policy)
        self._taken = 0
        self._given = 0
        self._places: list[tuple[int, int, int, int]] = []

    @property
    def verdict(self) -> OutputVerdict:
        """The verdict so far."""
        return OutputVerdict(self._secrets.reason, self._links.removed)

    @property
    def reason(self) -> str:
        """Why the answer was cut off, "" where it was not: the verdict's, at less cost."""
        return self._secrets.reason

    def feed(self, delta: str) -> str:
        """Take the next piece of text; return what may be shown now."""
        if self._is_blocked():
            return ""
        safe = self._secrets.feed(delta)
        units = self._links.feed(safe) if safe else []
        if self._is_blocked():
            units += self._links.finish()
        return self._show(units)

    def finish(self) -> str:
        """End the text; return the rest that may be shown."""
        if self._is_blocked():
            return ""
        units = self._links.feed(self._secrets.finish())
        return self._show([*units, *self._links.finish()])

    def _is_blocked(self) -> bool:
        return self._secrets.reason != ""

    def _show(self, units: list[tuple[str, str]]) -> str:
        """Note where each unit came from and went to; units are (as written, as shown)."""
        if not units:
            return ""
        shown: list[str] = []
        for written, said in units:
            if written != said:
                same = _common(written, said)
                tail = _common(written[same:][::-1], said[same:][::-1])
                self._places.append(
                    (
                        self._taken + same,
                        self._taken + len(written) - tail,
                        self._given + same,
                        self._given + len(said) - tail,
                    )
                )
            self._taken += len(written)
            self._given += len(said)
            shown.append(said)
        return "".join(shown)

    def shown_span(self, start: int, end: int) -> tuple[int, int]:
        """Where a span of the text that was fed stands in the text that was shown; widened over changed stretches."""
        return self._shown(start, ends=False), self._shown(end, ends=True)

    def _shown(self, place: int, *, ends: bool) -> int:
        shift = 0
        for first, last, shown_first, shown_last in self._places:
            if place <= first:
                break
            if place < last:
                return shown_last if ends else shown_first
            shift = shown_last - last
        return place + shift

    @property
    def taken(self) -> int:
        """Code points of the fed text that have been decided."""
        return self._taken


def _common(first: str, second: str) -> int:
    """How many code points two texts have in common at their beginning."""
    return next(
        (at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other),
        min(len(first), len(second)),
    )


class _SecretStage:
    """Holds text back while its end may be the beginning of a secret.

    What is held begins with the first letter of the longest such end, so whatever is complete stands in it whole.
    """

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self.reason = ""
        self._secrets = tuple(secrets)
        needles = [len(needle) for secret in secrets for needle in secret.needles]
        self._shortest = min([LEAK_LENGTH, *needles])
        self._held = ""
        self._letters = ""

    def feed(self, delta: str) -> str:
        if not self._secrets:
            return delta
        self._held += delta
        self._letters += squeeze(delta)
        if len(self._letters) >= self._shortest:
            found = self._first_match()
            if found is not None:
                begins, self.reason = found
                return self._release(len(self._letters) - begins)
        released = self._release(self._keep())
        if len(self._held) > MOST_HELD:
            self.reason = "held-too-long"
        return released

    def finish(self) -> str:
        released, self._held = self._held, ""
        return released

    def _first_match(self) -> tuple[int, str] | None:
        """Where the secret that is complete first begins in the letters held."""
        found: list[tuple[int, int, str]] = []
        for secret in self._secrets:
            for needle in secret.needles:
                begins = self._letters.find(needle)
                if begins >= 0:
                    found.append((begins + len(needle), begins, "canary"))
            overlap = longest_overlap(self._letters, secret)
            if overlap is not None:
                found.append((overlap[1], overlap[0], "system-prompt"))
        if not found:
            return None
        _, begins, reason = min(found)
        return begins, reason

    def _keep(self) -> int:
        """How many letters at the end may be the beginning of something secret."""
        keep = 0
        for secret in self._secrets:
            keep = max(keep, _longest_beginning(self._letters, secret), _longest_tail(self._letters, secret))
        return keep

    def _release(self, keep: int) -> str:
        """Give everything before the last `keep` letters free."""
        if not keep:
            released, self._held, self._letters = self._held, "", ""
            return released
        until = [place for _, place in squeezed(self._held)][-keep]
        released, self._held = self._held[:until], self._held[until:]
        self._letters = self._letters[len(self._letters) - keep :]
        return released


def _longest_beginning(letters: str, secret: Secret) -> int:
    """Length of the longest end of `letters` that begins a shape of the canary."""
    for length in range(min(len(letters), secret.longest), 0, -1):
        if letters[-length:] in secret.prefixes:
            return length
    return 0


def _longest_tail(letters: str, secret: Secret) -> int:
    """Length of the longest end of `letters` that stands in the prompt, below the length that is a leak."""
    if len(secret.prompt) < LEAK_LENGTH:
        return 0
    high = min(len(letters), LEAK_LENGTH - 1)
    if high < SHORT_PIECE or letters[-SHORT_PIECE:] not in secret.pieces:
        for length in range(min(high, SHORT_PIECE - 1), 0, -1):
            if letters[-length:] in secret.pieces:
                return length
        return 0
    low = SHORT_PIECE
    while low < high:
        middle = (low + high + 1) // 2
        if letters[-middle:] in secret.prompt:
            low = middle
        else:
            high = middle - 1
    return low


_WORD_END = re.compile(r"[\s。！？，、；：]")
_OPENS = re.compile(r"[\[\]<&\\]")
_LONGEST_WORD = 4096
_LONGEST_UNIT = 4096
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n\Z")


class _LinkStage:
    """Judges addresses word by word; from a bracket on, whole lines, with the parser's last word on them."""

    def __init__(self, policy: UrlPolicy) -> None:
        self.removed = 0
        self._policy = policy
        self._word = ""
        self._written = ""
        self._unit = ""

    def feed(self, text: str) -> list[tuple[str, str]]:
        units: list[tuple[str, str]] = []
        self._word += text
        start = 0
        for match in _WORD_END.finditer(self._word):
            self._take(self._word[start : match.end()], units)
            start = match.end()
        self._word = self._word[start:]
        while len(self._word) > _LONGEST_WORD:
            self._take(self._word[:_LONGEST_WORD], units)
            self._word = self._word[_LONGEST_WORD:]
        return units

    def finish(self) -> list[tuple[str, str]]:
        units: list[tuple[str, str]] = []
        if self._word:
            self._take(self._word, units)
            self._word = ""
        self._flush(units)
        return units

    def _take(self, word: str, units: list[tuple[str, str]]) -> None:
        """A word with the sign that ends it."""
        plain = word if word.isascii() and word.isprintable() else canonicalise(word)
        body = plain.rstrip()
        cleaned, removed = clean_word(body, self._policy)
        self.removed += removed
        cleaned += plain[len(body) :]
        if not self._unit and not removed and not _OPENS.search(body):
            units.append((word, cleaned))
            return
        self._written += word
        self._unit += cleaned
        whole = word[-1:] == "\n" and (_balanced(self._unit) or _BLANK_LINE.search(self._unit))
        if whole or len(self._unit) > _LONGEST_UNIT:
            self._flush(units)

    def _flush(self, units: list[tuple[str, str]]) -> None:
        if not self._written:
            return
        said = tidy(self._unit)
        if violations(said, self._policy):
            said = defuse(said)
            self.removed += 1
            if violations(said, self._policy):
                said = REMOVED
        units.append((self._written, said))
        self._written = self._unit = ""


def _balanced(text: str) -> bool:
    return (
        text.count("[") == text.count("]")
        and text.count("<") <= text.count(">")
        and not text.rstrip().endswith(("]", "(", ":"))
    )


class GuardedAnswer:
    """An OutputGuard over text and citations: citations wait for their text and point into what is shown."""

    def __init__(self, guard: OutputGuard) -> None:
        self._guard = guard
        self._waiting: list[Citation] = []

    @property
    def verdict(self) -> OutputVerdict:
        """The verdict so far."""
        return self._guard.verdict

    @property
    def reason(self) -> str:
        """As the guard's."""
        return self._guard.reason

    def feed(self, items: Iterable[str | Citation]) -> list[str | Citation]:
        """Take text and citations in their order; return what may be shown now, in order."""
        out: list[str | Citation] = []
        for item in items:
            if isinstance(item, str):
                self._add(out, self._guard.feed(item))
            else:
                self._waiting.append(item)
        return [*out, *self._due()]

    def finish(self) -> list[str | Citation]:
        """End the answer: the rest of the text and the citations whose text was shown."""
        out: list[str | Citation] = []
        self._add(out, self._guard.finish())
        out += self._due()
        self._waiting = []
        return out

    @staticmethod
    def _add(out: list[str | Citation], shown: str) -> None:
        if shown:
            if out and isinstance(out[-1], str):
                out[-1] += shown
            else:
                out.append(shown)

    def _due(self) -> list[str | Citation]:
        due: list[str | Citation] = []
        while self._waiting and self._waiting[0].answer_end <= self._guard.taken:
            citation = self._waiting.pop(0)
            start, end = self._guard.shown_span(citation.answer_start, citation.answer_end)
            due.append(replace(citation, answer_start=start, answer_end=end))
        return due
