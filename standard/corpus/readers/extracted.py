"""What a reader makes of a file, and the error for a file it cannot read."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

MAX_TITLE = 300
MAX_UNPACKED_BYTES = 500_000_000
MAX_ZIP_ENTRIES = 20_000
# what text extraction leaves behind: controls save tab and line feed, soft hyphens, byte order marks, lone surrogates
_DEBRIS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\ufeff\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Extracted:
    """Title, text with Markdown headings and tables, and what front matter said; empty where a file says nothing."""

    title: str
    text: str
    document_id: str = ""
    uri: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)
    groups: tuple[str, ...] = ()


class Unreadable(Exception):
    """The file cannot be read as what it claims to be; the message is for the report of rejections."""


def decode_text(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 that says so, with line feeds alone as line ends. Raises Unreadable for anything else."""
    encoding = "utf-8"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif b"\x00" in data:
        raise Unreadable(f"holds a NUL byte (at {data.index(0)}): no text")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as problem:
        byte = data[problem.start]
        line = data.count(b"\n", 0, problem.start) + 1
        raise Unreadable(f"not {encoding.upper()}: byte 0x{byte:02x} in line {line}; convert the file") from problem
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def without_debris(text: str) -> str:
    """Drop what extraction leaves behind and no reader sees."""
    return _DEBRIS.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0b", "\n").replace("\x0c", "\n"))


def one_line(text: str) -> str:
    """Join lines and runs of blanks into single blanks."""
    return " ".join(text.split())


def title_from(*candidates: str) -> str:
    """Return the first candidate that is not blank, on one line and of bearable length."""
    return next((line[:MAX_TITLE] for text in candidates if (line := one_line(text))), "")


def joined(blocks: list[str]) -> str:
    """Join blocks by blank lines; list items that follow one another by line ends alone."""
    parts: list[str] = []
    for before, block in zip(["", *blocks], blocks, strict=False):
        if parts:
            parts.append("\n" if _is_item(block) and _is_item(before) else "\n\n")
        parts.append(block)
    return "".join(parts)


def _is_item(block: str) -> bool:
    return block.lstrip(" ").startswith("- ")


def may_be_heading(text: str) -> bool:
    """Tell whether a line set in bold reads like a heading: short, and no sentence."""
    return len(text) <= 100 and text[-1] not in ".!?,;。！？"


def table_lines(rows: list[list[str]]) -> str:
    """Return a table the Markdown way, its first row as the header; "" for one without content."""
    width = max((len(row) for row in rows), default=0)
    cells = [[one_line(cell).replace("|", "\\|") for cell in row] + [""] * (width - len(row)) for row in rows]
    cells = [row for row in cells if any(row)]
    if not cells:
        return ""
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join(lines)


def check_archive(stream: BinaryIO) -> None:
    """Raise Unreadable unless the stream is a ZIP archive of bearable size once unpacked; rewinds the stream."""
    try:
        with zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile as problem:
        raise Unreadable(f"no Office file: {problem}") from problem
    if len(entries) > MAX_ZIP_ENTRIES or sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
        raise Unreadable("unpacks to more than it is safe to read")
    stream.seek(0)
