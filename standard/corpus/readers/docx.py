# ruff: noqa: SLF001 - python-docx has no public way to the XML
"""Word documents: headings, paragraphs, lists and tables in their order, with insertions, without what is hidden.

The runs are read from the XML, since python-docx's `paragraph.text` leaves out tracked insertions, and fields.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

import docx
from docx.oxml.ns import qn
from docx.table import Table
from docx.text.paragraph import Paragraph

from standard.corpus.readers.extracted import (
    Extracted,
    check_archive,
    joined,
    may_be_heading,
    one_line,
    table_lines,
    title_from,
    without_debris,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docx.document import Document
    from docx.oxml.xmlchemy import BaseOxmlElement
    from docx.table import _Cell

_RUN, _TEXT, _TAB, _BREAK, _RETURN = (qn(f"w:{name}") for name in ("r", "t", "tab", "br", "cr"))
_PROPERTIES, _VANISH, _NUMBERING = qn("w:rPr"), qn("w:vanish"), qn("w:numPr")
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_HEADING = re.compile(r"heading ([1-6])", re.IGNORECASE)
_LIST = re.compile(r"list (bullet|number)", re.IGNORECASE)
_DEEPEST = 20  # tables in tables


def read_docx(stream: BinaryIO) -> Extracted:
    """Read a Word file (.docx). Raises Unreadable, or whatever python-docx raises for a damaged one."""
    check_archive(stream)
    document = docx.Document(stream)
    blocks = list(_blocks(document, 0))
    title = document.core_properties.title or ""
    return Extracted(title=title_from(title), text=joined(blocks))


def _blocks(container: Document | _Cell, depth: int) -> Iterator[str]:
    for part in container.iter_inner_content():
        if isinstance(part, Table):
            if depth < _DEEPEST and (lines := _table(part, depth)):
                yield lines
        elif text := _paragraph(part):
            yield text


def _paragraph(paragraph: Paragraph) -> str:
    text = without_debris("".join(_runs(paragraph._p))).strip()
    if not text:
        return ""
    style = paragraph.style.name if paragraph.style is not None and paragraph.style.name else ""
    if style.lower() == "title":
        return f"# {one_line(text)}"
    if heading := _HEADING.match(style):
        return "#" * int(heading[1]) + " " + one_line(text)
    bold = [bool(run.bold) for run in paragraph.runs if run.text.strip()]
    if "\n" not in text and bold and all(bold) and may_be_heading(text):
        return f"#### {text}"
    if _LIST.match(style) or paragraph._p.find(f"{qn('w:pPr')}/{_NUMBERING}") is not None:
        return f"- {one_line(text)}"
    return "\n".join(one_line(line) for line in text.split("\n"))


def _runs(paragraph: BaseOxmlElement) -> Iterator[str]:
    """Yield the visible text of a paragraph: tracked deletions have other elements, Fallback repeats what is new."""
    for run in paragraph.iter(_RUN):
        properties = run.find(_PROPERTIES)
        hidden = properties.find(_VANISH) if properties is not None else None
        if hidden is not None and hidden.get(qn("w:val")) not in ("0", "false", "off"):
            continue
        if any(ancestor.tag == _FALLBACK for ancestor in run.iterancestors()):
            continue
        for child in run:
            if child.tag == _TEXT:
                yield child.text or ""
            elif child.tag == _TAB:
                yield "\t"
            elif child.tag in (_BREAK, _RETURN):
                yield "\n"


def _table(table: Table, depth: int) -> str:
    rows = []
    for row in table.rows:
        cells: list[str] = []
        before = None
        for cell in row.cells:  # a merged cell is listed once a column it spans
            if cell._tc is not before:
                cells.append(" ".join(_blocks(cell, depth + 1)))
            before = cell._tc
        rows.append(cells)
    return table_lines(rows)
