"""Cut a document into chunks that fit the embedder's window, and into the parent sections people and models read.

Prevents text that is stored but cannot be found: MiniLM reads 256 word pieces and drops the rest without a word. Every
chunk is an exact substring of the document; chunks follow one another without overlap and together hold every non-blank
character. They end where sentences end; only a sentence too long for a chunk is split (standard.corpus.overlong). A
heading stays with what follows it.

What is embedded is the chunk with its title and headings before it, since a chunk torn from its document seldom says
what it is about. That context is shortened where it is long; title and headings themselves are stored in full. Pure
functions; linear in the length of the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from standard.corpus.blocks import Unit, units_of
from standard.corpus.embeddable import embeddable
from standard.corpus.overlong import middle, split_overlong
from standard.domain.errors import FailedPrecondition, InvalidInput

TokenCounter: TypeAlias = Callable[[Sequence[str]], list[int]]
"""Counts the tokens of each text as the embedder does, special tokens included."""

_FORMAT = "sentences-1"
_COUNTED_AT_ONCE = 512  # texts handed to the tokenizer in one call: it keeps every token of a call in memory


@dataclass(frozen=True, slots=True)
class Chunking:
    """Sizes, in tokens of the embedder.

    The defaults are what serves the shipped embedder best on whole documents: a larger target or minimum finds fewer of
    the supporting documents, a smaller one gains nothing more, nor does repeating the last sentence of the chunk
    before; leaving the context line out loses some. Collections of single paragraphs do not care.

    A chunk has about `target_tokens`; a heading ends the one before it once that has `minimum_tokens`. `context_tokens`
    bounds the title and headings put before it, `section_tokens` the parent section. `maximum_characters` bounds a
    chunk where tokens do not: a tokenizer may count a long run without spaces as one unknown token.
    """

    target_tokens: int = 150
    minimum_tokens: int = 40
    context_tokens: int = 40
    section_tokens: int = 1000
    maximum_characters: int = 2000

    def describe(self) -> str:
        """Return the text that a generation keeps, so that later ingests cut alike."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, sort_keys=True)


def read_chunking(description: str) -> Chunking:
    """Read what `Chunking.describe` wrote; raises FailedPrecondition for the format of another release."""
    values = json.loads(description)
    if values.pop("format", None) != _FORMAT:
        raise FailedPrecondition(f"the collection was cut by another release; this one cuts as {_FORMAT}: rebuild it")
    return Chunking(**values)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk. Offsets are code points, half-open.

    `start`, `end`, `section_start` and `section_end` lie in the document. `section_heading` is the path of headings
    above the chunk's content, joined by " > ". `embedded` is what the embedder reads: the `context` line (title and
    headings that are not in the chunk), then the words of each sentence. `sentences` are spans of `text`,
    `embedded_sentences` the same sentences in `embedded`; what has no words is in neither. `token_count` is that of
    `embedded`, special tokens included.
    """

    position: int
    start: int
    end: int
    section_start: int
    section_end: int
    section_heading: str
    text: str
    context: str
    embedded: str
    sentences: tuple[tuple[int, int], ...]
    embedded_sentences: tuple[tuple[int, int], ...]
    token_count: int


@dataclass(frozen=True, slots=True)
class _Counted:
    """A unit, its words as they are embedded, and how many tokens these are."""

    unit: Unit
    words: str
    tokens: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbouring units that become one chunk; `tokens` counts the embedded text."""

    run: Sequence[_Counted]
    context: str
    embedded: str
    tokens: int


def chunk_document(
    title: str, text: str, *, count_tokens: TokenCounter, max_tokens: int, chunking: Chunking | None = None
) -> list[Chunk]:
    """Cut `text` into chunks whose embedded form has at most `max_tokens` (>= 32) tokens, special ones included.

    A blank text has no chunks. Raises InvalidInput where not even a single character fits.
    """
    if max_tokens < 32:
        raise InvalidInput("max_tokens", "a window of less than 32 tokens cannot hold a chunk")
    sizes = chunking or Chunking()
    units = units_of(text)
    if not units:
        return []
    counter = _Counter(count_tokens)
    contexts = _Contexts(title, text, counter, min(sizes.context_tokens, max_tokens // 3))
    budget = min(sizes.target_tokens, max_tokens - counter.special - 1)
    counted = _split_long(text, units, counter, budget, sizes.maximum_characters)
    runs = [piece for run in _runs(counted, sizes.minimum_tokens) for piece in _pack(run, budget, sizes)]
    pieces = _fit(text, runs, contexts, counter, max_tokens)
    # A rule or a row of dots would take a passage's place in every answer; a text of nothing else is kept.
    pieces = [piece for piece in pieces if _says_something(text, piece)] or pieces
    sections = _sections(pieces, sizes.section_tokens)
    return [
        _chunk(text, position, piece, section)
        for position, (piece, section) in enumerate(zip(pieces, sections, strict=True))
    ]


def _says_something(text: str, piece: _Piece) -> bool:
    if any(part.words for part in piece.run):
        return True
    return any(map(str.isalnum, text[piece.run[0].unit.start : piece.run[-1].unit.end]))


def _chunk(text: str, position: int, piece: _Piece, section: tuple[int, int]) -> Chunk:
    start, end = piece.run[0].unit.start, piece.run[-1].unit.end
    said = [part for part in piece.run if part.words]
    embedded_sentences = []
    place = len(piece.embedded)
    for part in reversed(said):  # the words are the end of what is embedded
        embedded_sentences.append((place - len(part.words), place))
        place -= len(part.words) + 1
    return Chunk(
        position=position,
        start=start,
        end=end,
        section_start=section[0],
        section_end=section[1],
        section_heading=" > ".join(_content(piece.run).path),
        text=text[start:end],
        context=piece.context,
        embedded=piece.embedded,
        sentences=tuple((part.unit.start - start, part.unit.end - start) for part in said),
        embedded_sentences=tuple(reversed(embedded_sentences)),
        token_count=piece.tokens,
    )


def _embedded(text: str, run: Sequence[_Counted], context: str) -> str:
    """Return what is embedded of a run: its words behind the context line, or its bare text where it has no words."""
    words = "\n".join(part.words for part in run if part.words)
    return context + (words or text[run[0].unit.start : run[-1].unit.end])


def _content(run: Sequence[_Counted]) -> Unit:
    """Return the first unit that is no heading, or the last heading where there is nothing else."""
    return next((part.unit for part in run if not part.unit.heading_level), run[-1].unit)


class _Counter:
    """The embedder's token counter, called with bounded batches; `special` tokens are added to every text."""

    def __init__(self, count_tokens: TokenCounter) -> None:
        self._count = count_tokens
        self.special = count_tokens([""])[0]

    def whole(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special ones included."""
        counts: list[int] = []
        for first in range(0, len(texts), _COUNTED_AT_ONCE):
            counts += self._count(texts[first : first + _COUNTED_AT_ONCE])
        return counts

    def net(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special ones excluded."""
        return [max(count - self.special, 0) for count in self.whole(texts)]


class _Contexts:
    """The line put before a chunk: title and headings that the chunk does not hold itself, shortened to a budget."""

    def __init__(self, title: str, text: str, counter: _Counter, budget: int) -> None:
        self._title = " ".join(title.split())
        self._text = text
        self._counter = counter
        self._budget = budget
        self._known: dict[str, str] = {"": ""}

    def of(self, run: Sequence[_Counted]) -> str:
        own = {part.unit.path[-1] for part in run if part.unit.heading_level}
        path = [name for name in _content(run).path if name != self._title]
        wanted = " > ".join(name for name in (self._title, *path) if name and name not in own)
        if wanted not in self._known:
            self._known[wanted] = self._shortened(wanted)
        return self._known[wanted]

    def _shortened(self, wanted: str) -> str:
        while wanted:
            tokens = self._counter.net([wanted])[0]
            if tokens <= self._budget:
                return wanted + "\n"
            wanted = wanted[: min(len(wanted) - 1, len(wanted) * self._budget // tokens)].rstrip()
        return ""


def _split_long(text: str, units: Sequence[Unit], counter: _Counter, budget: int, characters: int) -> list[_Counted]:
    """Count the units' tokens and split those that are longer than a chunk."""
    counted = []
    words = [embeddable(text[unit.start : unit.end]) for unit in units]
    for unit, said, count in zip(units, words, counter.net(words), strict=True):
        if count <= budget and unit.end - unit.start <= characters:
            counted.append(_Counted(unit, said, count))
            continue
        parts = split_overlong(text, unit.start, unit.end, cost=counter.net, budget=budget, characters=characters)
        counted += [_Counted(unit.part(start, end), embeddable(text[start:end]), part) for start, end, part in parts]
    return counted


def _runs(units: Sequence[_Counted], minimum: int) -> list[list[_Counted]]:
    """Group units into runs that no chunk crosses: a heading begins one, unless the run before it is still small."""
    runs: list[list[_Counted]] = []
    tokens = 0
    after_heading = False
    for part in units:
        is_heading = part.unit.heading_level > 0
        if not runs or (is_heading and not after_heading and tokens >= minimum):
            runs.append([])
            tokens = 0
        runs[-1].append(part)
        tokens += part.tokens
        after_heading = is_heading
    return runs


def _pack(run: Sequence[_Counted], budget: int, sizes: Chunking) -> list[list[_Counted]]:
    """Cut a run into pieces of even size, each within the budget as far as tokens add up."""
    total = sum(part.tokens for part in run)
    goal = total / max(1, -(-total // budget))
    pieces: list[list[_Counted]] = [[]]
    tokens = 0
    for part in run:
        piece = pieces[-1]
        too_long = piece and part.unit.end - piece[0].unit.start > sizes.maximum_characters
        if piece and (too_long or tokens + part.tokens > budget or tokens + part.tokens / 2 > goal):
            carried = _trailing_headings(piece)
            pieces.append(carried)
            tokens = sum(heading.tokens for heading in carried)
        pieces[-1].append(part)
        tokens += part.tokens
    return pieces


def _trailing_headings(piece: list[_Counted]) -> list[_Counted]:
    """Take the headings a piece ends with off it, unless it holds nothing else: they belong to what follows."""
    count = 0
    while count < len(piece) and piece[-1 - count].unit.heading_level:
        count += 1
    if count in (0, len(piece)):
        return []
    carried = piece[-count:]
    del piece[-count:]
    return carried


def _fit(
    text: str, runs: Sequence[Sequence[_Counted]], contexts: _Contexts, counter: _Counter, max_tokens: int
) -> list[_Piece]:
    """Count every piece with its context as the embedder will, and halve those that do not fit until they do."""
    fitted: list[_Piece | None] = [None] * len(runs)
    unfitted = list(range(len(runs)))
    parts = [list(run) for run in runs]
    while unfitted:
        lines = [contexts.of(parts[index]) for index in unfitted]
        embedded = [_embedded(text, parts[index], line) for index, line in zip(unfitted, lines, strict=True)]
        counts = counter.whole(embedded)
        for index, line, words, count in zip(unfitted, lines, embedded, counts, strict=True):
            if count <= max_tokens:
                fitted[index] = _Piece(parts[index], line, words, count)
        if all(piece is not None for piece in fitted):
            break
        parts, fitted = _halved(text, parts, fitted)
        unfitted = [index for index, piece in enumerate(fitted) if piece is None]
    return [piece for piece in fitted if piece is not None]


def _halved(
    text: str, parts: Sequence[list[_Counted]], fitted: Sequence[_Piece | None]
) -> tuple[list[list[_Counted]], list[_Piece | None]]:
    """Put two halves in the place of every run that did not fit."""
    new_parts: list[list[_Counted]] = []
    new_fitted: list[_Piece | None] = []
    for part, piece in zip(parts, fitted, strict=True):
        halves = [part] if piece is not None else _halves(text, part)
        new_parts += halves
        new_fitted += [piece] * len(halves)
    return new_parts, new_fitted


def _halves(text: str, run: list[_Counted]) -> list[list[_Counted]]:
    if len(run) > 1:
        half = len(run) // 2
        return [run[:half], run[half:]]
    unit, tokens = run[0].unit, run[0].tokens
    if unit.end - unit.start < 2:
        raise InvalidInput("text", "a single character is longer than the embedder's window")
    cut = middle(text, unit.start, unit.end)
    left = len(text[unit.start : cut].rstrip()) + unit.start
    right = cut + len(text[cut : unit.end]) - len(text[cut : unit.end].lstrip())
    return [
        [_Counted(unit.part(start, end), embeddable(text[start:end]), tokens // 2 + 1)]
        for start, end in ((unit.start, left), (right, unit.end))
        if start < end
    ]


def _sections(pieces: Sequence[_Piece], target: int) -> list[tuple[int, int]]:
    """Return the parent section of each piece: about `target` tokens of neighbours, parted at headings if it can be."""
    starts: list[int] = []
    tokens = 0
    level = 0
    for index, piece in enumerate(pieces):
        size = sum(part.tokens for part in piece.run)
        own_level = piece.run[0].unit.heading_level
        outranks = 0 < own_level <= (level or 6)
        if not starts or tokens + size > target or (outranks and 2 * tokens >= target):
            starts.append(index)
            tokens = 0
            level = own_level
        tokens += size
    result: list[tuple[int, int]] = []
    for start, stop in zip(starts, [*starts[1:], len(pieces)], strict=True):
        span = (pieces[start].run[0].unit.start, pieces[stop - 1].run[-1].unit.end)
        result += [span] * (stop - start)
    return result
