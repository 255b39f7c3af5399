"""A source document as a text PDF on A4, with headings, tables, a running head and page numbers.

The bytes depend on the source alone: dates come from the document, the file id from its content, and streams are not
compressed, since zlib builds differ in their output.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final, assert_never

from fpdf import FPDF
from fpdf.enums import XPos, YPos
from fpdf.fonts import FontFace

from deploy.demo.document import Heading, Listing, Paragraph, Table

if TYPE_CHECKING:
    from deploy.demo.document import Block, Document, Inline

FONT: Final = "Helvetica"
BODY_POINTS: Final = 11.5
LINE_MM: Final = 6.0
INDENT_MM: Final = 6.0


class _Page(FPDF):
    """A4 with the running head and the page number of Tessary Sound Ferries."""

    def __init__(self, document: Document) -> None:
        super().__init__(format="A4")
        self.document = document
        self.core_fonts_encoding = "cp1252"
        self.set_compression(False)
        self.set_margins(26, 22, 26)
        self.set_auto_page_break(auto=True, margin=20)
        self.alias_nb_pages()
        self.set_creation_date(dt.datetime.combine(document.date, dt.time(9), tzinfo=dt.UTC))
        self.set_title(document.title)
        self.set_author("Tessary Sound Ferries")
        self.set_subject(f"{document.metadata['department']}: {document.metadata['kind']}")
        self.set_keywords(", ".join(f"{key}={value}" for key, value in document.metadata.items() if key != "title"))
        self.set_producer("fpdf2")

    def header(self) -> None:
        """The running head."""
        self.set_font(FONT, size=8)
        self.cell(0, 6, f"Tessary Sound Ferries   {self.document.id}", new_x=XPos.LMARGIN, new_y=YPos.NEXT)
        self.ln(3)

    def footer(self) -> None:
        """The page number."""
        self.set_y(-15)
        self.set_font(FONT, size=8)
        self.cell(0, 6, f"Page {self.page_no()} of {{nb}}", align="C")


def render_pdf(document: Document) -> bytes:
    """The document as PDF bytes."""
    page = _Page(document)
    page.add_page()
    page.set_font(FONT, "B", 17)
    _lines(page, document.title, 8)
    page.set_font(FONT, "I", 9)
    _lines(page, document.imprint, LINE_MM)
    page.ln(3)
    for block in document.blocks():
        _draw(page, block)
    return bytes(page.output())


def _draw(page: _Page, block: Block) -> None:
    match block:
        case Heading(level, text):
            page.set_font(FONT, "B", 13 if level <= 2 else 11.5)
            if page.will_page_break(22):
                page.add_page()
                page.set_font(FONT, "B", 13 if level <= 2 else 11.5)
            page.ln(1.5)
            _lines(page, "".join(span.text for span in text), 6.5)
            page.ln(0.8)
        case Paragraph(text, quoted):
            page.set_font(FONT, size=BODY_POINTS)
            _lines(page, _marked(text), LINE_MM, indent=INDENT_MM if quoted else 0.0)
            page.ln(2.2)
        case Listing(items, ordered):
            page.set_font(FONT, size=BODY_POINTS)
            for number, item in enumerate(items, start=1):
                mark = f"{number}." if ordered else "•"
                _lines(page, f"{mark} {_marked(item)}", LINE_MM, indent=INDENT_MM)
            page.ln(2.2)
        case Table(header, rows):
            page.set_font(FONT, size=10)
            with page.table(
                [[_marked(cell) for cell in row] for row in (header, *rows)],
                markdown=True,
                text_align="L",
                line_height=LINE_MM,
                padding=0.8,
                headings_style=FontFace(emphasis="BOLD", fill_color=(226, 234, 240)),
            ):
                pass
            page.ln(3)
        case _:
            assert_never(block)


def _lines(page: _Page, text: str, height: float, *, indent: float = 0.0) -> None:
    page.set_x(page.l_margin + indent)
    page.multi_cell(0, height, text, align="L", markdown=True, new_x=XPos.LMARGIN, new_y=YPos.NEXT)


def _marked(text: Inline) -> str:
    parts = []
    for span in text:
        mark = ("**" if span.bold else "") + ("__" if span.italic else "")
        parts.append(f"{mark}{span.text}{mark[::-1]}")
    return "".join(parts)
