"""Slides: title, texts, tables and speaker notes of each, in order.

Hidden slides are left out: what nobody is shown is neither searched nor cited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import pptx
from pptx.shapes.group import GroupShape

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
    from collections.abc import Iterable, Iterator

    from pptx.shapes.base import BaseShape
    from pptx.slide import Slide
    from pptx.table import Table
    from pptx.text.text import TextFrame


def read_pptx(stream: BinaryIO) -> Extracted:
    """Read a presentation (.pptx). Raises Unreadable, or whatever python-pptx raises for a damaged one."""
    check_archive(stream)
    presentation = pptx.Presentation(stream)
    shown = (slide for slide in presentation.slides if slide._element.get("show") != "0")  # noqa: SLF001 - no public way
    slides = [list(_slide(slide)) for slide in shown]
    title = presentation.core_properties.title or ""
    if title.lower() in ("powerpoint presentation", "presentation"):  # what programs fill in by themselves
        title = ""
    return Extracted(title=title_from(title), text="\n\n".join("\n\n".join(blocks) for blocks in slides if blocks))


def _slide(slide: Slide) -> Iterator[str]:
    heading = slide.shapes.title
    if heading is not None and (text := one_line(without_debris(heading.text_frame.text))):
        yield f"## {text}"
    for shape in _flat(slide.shapes):
        if heading is not None and shape.shape_id == heading.shape_id:
            continue
        if getattr(shape, "has_table", False) and shape.has_table:
            table: Table = shape.table  # type: ignore[attr-defined]
            if lines := table_lines([[without_debris(cell.text) for cell in row.cells] for row in table.rows]):
                yield lines
        elif shape.has_text_frame and (text := _paragraphs(shape.text_frame)):  # type: ignore[attr-defined]
            yield text
    notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    if notes is not None and (text := _paragraphs(notes)):
        yield f"Notes:\n{text}"


def _flat(shapes: Iterable[BaseShape]) -> Iterator[BaseShape]:
    """Yield shapes, those in groups too."""
    stack = list(shapes)[::-1]
    while stack:
        shape = stack.pop()
        if isinstance(shape, GroupShape):
            stack += list(shape.shapes)[::-1]
        else:
            yield shape


def _paragraphs(frame: TextFrame) -> str:
    """Return the paragraphs of a frame, one a line: several are a list, as they are on a slide; bold ones head it."""
    paragraphs = [
        (paragraph, text) for paragraph in frame.paragraphs if (text := one_line(without_debris(paragraph.text)))
    ]
    blocks = []
    for paragraph, text in paragraphs:
        bold = [bool(run.font.bold) for run in paragraph.runs if run.text.strip()]
        if len(paragraphs) > 1 and bold and all(bold) and may_be_heading(text):
            blocks.append(f"### {text}")
        elif len(paragraphs) == 1:
            blocks.append(text)
        else:
            blocks.append("  " * paragraph.level + f"- {text}")
    return joined(blocks)
