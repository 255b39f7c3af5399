"""What a query is read into: its tokens as written, its content words, and the facts gathered so far."""

from __future__ import annotations

from dataclasses import dataclass, field


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


@dataclass(slots=True)
class Builder:
    """The facts of a query as they are gathered, token by token."""

    words: list[Word] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    units: set[str] = field(default_factory=set)
    negations: int = 0
    quantifiers: set[str] = field(default_factory=set)
    modality: set[str] = field(default_factory=set)
    tenses: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Token:
    """A token casefolded and as written; `first`: a sentence begins with it."""

    text: str
    written: str
    first: bool

    @property
    def capital(self) -> bool:
        """Is it written with a capital?"""
        return self.written[:1].isupper()
