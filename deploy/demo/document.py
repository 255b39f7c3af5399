"""A source document of the demo corpus: front matter, and a body as a short list of blocks.

The sources are CommonMark with tables. Only what the sources use is understood; anything else is an error, so that no
sentence is lost silently on its way into a PDF or a Word file.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from markdown_it.token import Token

Format: TypeAlias = Literal["md", "html", "pdf", "docx"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
REQUIRED: Final = ("id", "title", "date", "format", "department", "kind")
ID_PATTERN: Final = re.compile(r"[a-z]{3}-\d{3}-[a-z0-9]+(?:-[a-z0-9]+)*")


class SourceError(ValueError):
    """A source file breaks the corpus's own rules; the message names the file and the rule."""


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text in one style."""

    text: str
    bold: bool = False
    italic: bool = False


Inline: TypeAlias = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading below the title; level 2 is a section."""

    level: int
    text: Inline


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; `quoted` marks a block quotation."""

    text: Inline
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A flat bullet or numbered list."""

    items: tuple[Inline, ...]
    ordered: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table with one header row; every row has as many cells as the header."""

    header: tuple[Inline, ...]
    rows: tuple[tuple[Inline, ...], ...]


Block: TypeAlias = Heading | Paragraph | Listing | Table


@dataclass(frozen=True, slots=True)
class Document:
    """One source document. `body` is its Markdown without front matter, `metadata` every front matter key as text."""

    id: str
    title: str
    date: dt.date
    format: Format
    metadata: dict[str, str]
    body: str

    @property
    def word_count(self) -> int:
        """Words of the body, counted between white space."""
        return len(self.body.split())

    @property
    def imprint(self) -> str:
        """The line under the title that says whose document this is, what kind, how old and whether it is in force."""
        day = f"{self.date.day} {self.date:%B %Y}"
        parts = [self.metadata["department"], self.metadata["kind"], day]
        if "status" in self.metadata:
            parts.append(self.metadata["status"])
        return ", ".join(parts)

    def blocks(self) -> tuple[Block, ...]:
        """The body in reading order.

        Raises:
            SourceError: the body uses Markdown that the renderers do not know.
        """
        return tuple(_blocks(markdown().parse(self.body), self.id))


def markdown() -> MarkdownIt:
    """The Markdown dialect of the sources: CommonMark with tables."""
    return MarkdownIt("commonmark").enable("table")


def read_document(path: Path) -> Document:
    """Read one source file.

    Raises:
        SourceError: front matter is missing or incomplete, or the id is not the file's stem.
    """
    text = path.read_text(encoding="utf-8")
    head, separator, body = text.removeprefix("---\n").partition("\n---\n\n")
    if not text.startswith("---\n") or not separator:
        raise SourceError(f"{path.name}: front matter must stand between two lines of ---")
    metadata: dict[str, str] = {}
    for line in head.splitlines():
        key, colon, value = line.partition(": ")
        if not colon or not value.strip() or key in metadata:
            raise SourceError(f"{path.name}: front matter line {line!r} is not a new 'key: value'")
        metadata[key] = value.strip()
    missing = [key for key in REQUIRED if key not in metadata]
    if missing:
        raise SourceError(f"{path.name}: front matter lacks {', '.join(missing)}")
    if metadata["id"] != path.stem or not ID_PATTERN.fullmatch(path.stem):
        raise SourceError(f"{path.name}: the id must be the file's stem and look like pol-001-night-sailing")
    if metadata["format"] not in FORMATS:
        raise SourceError(f"{path.name}: format {metadata['format']!r} is not one of {', '.join(FORMATS)}")
    try:
        date = dt.date.fromisoformat(metadata["date"])
    except ValueError as error:
        raise SourceError(f"{path.name}: {error}") from error
    return Document(
        id=metadata["id"],
        title=metadata["title"],
        date=date,
        format=metadata["format"],
        metadata=metadata,
        body=body.strip() + "\n",
    )


def read_documents(folder: Path) -> tuple[Document, ...]:
    """Every source document of a folder, ordered by id.

    Raises:
        SourceError: one of them is malformed.
    """
    return tuple(read_document(path) for path in sorted(folder.glob("*.md")))


def _blocks(tokens: list[Token], name: str) -> Iterator[Block]:
    index = 0
    quoted = False
    while index < len(tokens):
        token = tokens[index]
        match token.type:
            case "heading_open":
                yield Heading(int(token.tag[1]), _inline(tokens[index + 1], name))
                index += 3
            case "paragraph_open":
                yield Paragraph(_inline(tokens[index + 1], name), quoted)
                index += 3
            case "blockquote_open" | "blockquote_close":
                quoted = token.type == "blockquote_open"
                index += 1
            case "bullet_list_open" | "ordered_list_open":
                end = _closing(tokens, index)
                inside = tokens[index + 1 : end]
                if any(inner.type.endswith("_list_open") for inner in inside):
                    raise SourceError(f"{name}: lists within lists are not rendered")
                items = tuple(_inline(inner, name) for inner in inside if inner.type == "inline")
                if len(items) != sum(inner.type == "list_item_open" for inner in inside):
                    raise SourceError(f"{name}: a list item must hold one paragraph")
                yield Listing(items, token.type == "ordered_list_open")
                index = end + 1
            case "table_open":
                end = _closing(tokens, index)
                header, *rows = _rows(tokens[index + 1 : end], name)
                yield Table(header, tuple(rows))
                index = end + 1
            case _:
                raise SourceError(f"{name}: Markdown block {token.type!r} is not rendered")


def _closing(tokens: list[Token], start: int) -> int:
    closing = tokens[start].type.replace("_open", "_close")
    level = tokens[start].level
    return next(i for i in range(start, len(tokens)) if tokens[i].type == closing and tokens[i].level == level)


def _rows(tokens: list[Token], name: str) -> Iterator[tuple[Inline, ...]]:
    cells: list[Inline] = []
    for token in tokens:
        if token.type == "tr_open":
            cells = []
        elif token.type == "inline":
            cells.append(_inline(token, name))
        elif token.type == "tr_close":
            yield tuple(cells)


def _inline(token: Token, name: str) -> Inline:
    spans: list[Span] = []
    bold = italic = False
    for child in token.children or []:
        match child.type:
            case "text" | "code_inline":
                if child.content:
                    spans.append(Span(child.content, bold, italic))
            case "softbreak":
                spans.append(Span(" ", bold, italic))
            case "strong_open" | "strong_close":
                bold = child.type == "strong_open"
            case "em_open" | "em_close":
                italic = child.type == "em_open"
            case _:
                raise SourceError(f"{name}: inline Markdown {child.type!r} is not rendered")
    return tuple(spans)
