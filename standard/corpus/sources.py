"""From what people name on a command line (files, folders, globs, standard input) to documents.

A document's id is its path below the folder that was named, without the ending, with `/` between folders: `ingest docs`
makes `guides/setup` of docs/guides/setup.md. A file that is named itself has its name without the ending. An `id` in a
file's front matter wins, and rows of JSONL bring their own. Two files of one id (setup.md beside setup.html) collide:
the first goes in, the second is reported. Files come in the order of their names. In folders, hidden files and kinds
without a reader are left out; a file that was named itself is reported then.
"""

from __future__ import annotations

import asyncio
import glob
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from standard.corpus.blocks import first_heading
from standard.corpus.document import MAX_DOCUMENT_BYTES, Rejection, SourceDocument
from standard.corpus.readers.docx import read_docx
from standard.corpus.readers.extracted import Extracted, Unreadable, title_from
from standard.corpus.readers.html import read_html
from standard.corpus.readers.jsonl import read_jsonl
from standard.corpus.readers.markdown import read_markdown, read_text
from standard.corpus.readers.pdf import read_pdf
from standard.corpus.readers.pptx import read_pptx

Item: TypeAlias = SourceDocument | Rejection

_TEXT_READERS: dict[str, Callable[[bytes], Extracted]] = {
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".txt": read_text,
    ".text": read_text,
    ".html": read_html,
    ".htm": read_html,
    ".xhtml": read_html,
}
_BINARY_READERS: dict[str, Callable[[BinaryIO], Extracted]] = {".pdf": read_pdf, ".docx": read_docx, ".pptx": read_pptx}
_JSONL = frozenset((".jsonl", ".ndjson"))
SUFFIXES = frozenset((*_TEXT_READERS, *_BINARY_READERS, *_JSONL))
"""File name endings with a reader, lower case."""
_BINARY_FACTOR = 10  # pictures and fonts: an Office file or PDF may be so much larger than the text in it
_MARKUP_FACTOR = 4


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    name: str  # below the folder that was named, with the ending


def read_sources(paths: Sequence[str], *, max_bytes: int = MAX_DOCUMENT_BYTES) -> Iterator[Item]:
    """Yield the documents of files, folders, globs and "-" (JSONL on standard input); reads from disk, so it blocks.

    `max_bytes` bounds a document's text. What cannot be read is yielded as a Rejection, and reading goes on.
    """
    taken: set[Path] = set()
    for named in paths:
        if named == "-":
            yield from read_jsonl(sys.stdin.buffer, source="stdin", max_bytes=max_bytes)
            continue
        for found in _expand(named):
            if isinstance(found, Rejection):
                yield found
                continue
            real = found.path.resolve()
            if real not in taken:
                taken.add(real)
                yield from _read_file(found, max_bytes)


async def in_thread(items: Iterator[Item], *, at_once: int = 64) -> AsyncIterator[Item]:
    """Yield what a blocking iterator yields, its work done in worker threads: what comes in 0.2 s at a time.

    No more than `at_once` items or 1 MB of text wait between two hops.
    """

    def some() -> list[Item]:
        group: list[Item] = []
        size = 0
        until = time.monotonic() + 0.2
        for item in items:
            group.append(item)
            size += len(item.text) if isinstance(item, SourceDocument) else 0
            if len(group) >= at_once or size >= 1_000_000 or time.monotonic() >= until:
                break
        return group

    while group := await asyncio.to_thread(some):
        for item in group:
            yield item


def _expand(named: str) -> Iterator[_File | Rejection]:
    """Yield the files that one argument stands for."""
    path = Path(named)
    try:
        if path.is_dir():
            yield from _in_folder(path)
        elif path.exists():
            yield _known(_File(path, path.name))
        elif glob.has_magic(named):
            yield from _matching(named)
        else:
            yield Rejection(named, 0, "there is no such file or folder")
    except (OSError, ValueError) as problem:
        yield Rejection(named, 0, f"cannot be read: {problem}")


def _in_folder(folder: Path) -> Iterator[_File]:
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in below.parts)
        if not hidden and path.suffix.lower() in SUFFIXES and path.is_file():
            yield _File(path, below.as_posix())


def _matching(pattern: str) -> Iterator[_File | Rejection]:
    fixed = []
    for part in Path(pattern).parts:
        if glob.has_magic(part):
            break
        fixed.append(part)
    base = Path(*fixed)
    files = [Path(match) for match in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 - takes absolute patterns
    files = [path for path in files if path.is_file()]
    if not files:
        yield Rejection(pattern, 0, "no file matches")
    for path in files:
        yield _known(_File(path, path.relative_to(base).as_posix()))


def _known(file: _File) -> _File | Rejection:
    if file.path.suffix.lower() in SUFFIXES:
        return file
    kinds = ", ".join(sorted(SUFFIXES))
    return Rejection(str(file.path), 0, f"there is no reader for {file.path.suffix or 'this kind of file'!r} ({kinds})")


def _read_file(file: _File, max_bytes: int) -> Iterator[Item]:
    suffix = file.path.suffix.lower()
    source = str(file.path)
    document_id = file.name[: -len(suffix)] or file.name
    try:
        if suffix in _JSONL:
            with file.path.open("rb") as stream:
                yield from read_jsonl(stream, source=source, max_bytes=max_bytes)
            return
        extracted = _extract(file.path, suffix, max_bytes)
    except Unreadable as problem:
        yield Rejection(source, 0, str(problem), document_id)
    except OSError as problem:
        yield Rejection(source, 0, f"cannot be read: {problem.strerror or problem}", document_id)
    else:
        yield SourceDocument(
            document_id=extracted.document_id or document_id,
            title=title_from(extracted.title, first_heading(extracted.text), _spoken(file.path.stem)),
            text=extracted.text,
            uri=extracted.uri or file.name,
            metadata=extracted.metadata,
            groups=extracted.groups,
            source=source,
        )


def _spoken(stem: str) -> str:
    return stem.replace("_", " ").replace("-", " ")


def _extract(path: Path, suffix: str, max_bytes: int) -> Extracted:
    size = path.stat().st_size
    factor = (
        _BINARY_FACTOR if suffix in _BINARY_READERS else 1 if suffix in (".txt", ".text", ".md") else _MARKUP_FACTOR
    )
    if size > factor * max_bytes:
        raise Unreadable(f"has {size} bytes, {factor * max_bytes} are read of a {suffix} file")
    if reader := _TEXT_READERS.get(suffix):
        return reader(path.read_bytes())
    with path.open("rb") as stream:
        try:
            return _BINARY_READERS[suffix](stream)
        except (Unreadable, MemoryError):
            raise
        except Exception as problem:
            reason = title_from(str(problem), type(problem).__name__)
            raise Unreadable(f"no readable {suffix} file: {reason}") from problem
