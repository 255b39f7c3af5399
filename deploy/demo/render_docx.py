"""A source document as a Word file with real heading, list and table styles.

The bytes depend on the source alone: core properties carry the document's date, archive members a fixed one, and
members are stored uncompressed, since zlib builds differ in their output. So that this stays small, the template's
picture and the several hundred kilobytes of table styles nobody uses are taken out.
"""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from typing import TYPE_CHECKING, Final, assert_never

import docx
from docx.enum.style import WD_STYLE_TYPE

from deploy.demo.document import Heading, Listing, Paragraph, Table

if TYPE_CHECKING:
    from docx.document import Document as WordDocument
    from docx.text.paragraph import Paragraph as WordParagraph

    from deploy.demo.document import Block, Document, Inline

TABLE_STYLE: Final = "Table Grid"
KEPT_TABLE_STYLES: Final = frozenset({"Normal Table", TABLE_STYLE})
MEMBER_DATE: Final = (2025, 1, 1, 0, 0, 0)
DROPPED_RELATIONSHIPS: Final = ("stylesWithEffects", "thumbnail", "customXml")


def render_docx(document: Document) -> bytes:
    """The document as DOCX bytes."""
    word = docx.Document()
    _slim(word)
    _describe(word, document)
    word.add_heading(document.title, level=0)
    imprint = word.add_paragraph()
    imprint.add_run(document.imprint).italic = True
    for block in document.blocks():
        _write(word, block)
    word.sections[0].header.paragraphs[0].text = f"Tessary Sound Ferries   {document.id}"
    buffer = io.BytesIO()
    word.save(buffer)
    return _repacked(buffer)


def _slim(word: WordDocument) -> None:
    for style in list(word.styles):
        if style.type == WD_STYLE_TYPE.TABLE and style.name not in KEPT_TABLE_STYLES:
            style.delete()
    for owner in (word.part.rels, word.part.package.rels):
        for key, relationship in list(owner.items()):
            if relationship.reltype.rpartition("/")[2] in DROPPED_RELATIONSHIPS:
                del owner[key]


def _describe(word: WordDocument, document: Document) -> None:
    moment = dt.datetime.combine(document.date, dt.time(9))  # python-docx writes naive times as UTC
    properties = word.core_properties
    properties.title = document.title
    properties.author = "Tessary Sound Ferries"
    properties.last_modified_by = "Tessary Sound Ferries"
    properties.subject = document.metadata["department"]
    properties.category = document.metadata["kind"]
    properties.content_status = document.metadata.get("status", "")
    properties.identifier = document.id
    properties.comments = ""
    properties.keywords = ""
    properties.revision = 1
    properties.created = moment
    properties.modified = moment


def _write(word: WordDocument, block: Block) -> None:
    match block:
        case Heading(level, text):
            word.add_heading("".join(span.text for span in text), level=level - 1)
        case Paragraph(text, quoted):
            _fill(word.add_paragraph(style="Intense Quote" if quoted else None), text)
        case Listing(items, ordered):
            for item in items:
                _fill(word.add_paragraph(style="List Number" if ordered else "List Bullet"), item)
        case Table(header, rows):
            table = word.add_table(rows=1 + len(rows), cols=len(header), style=TABLE_STYLE)
            for row, cells in zip(table.rows, (header, *rows), strict=True):
                for cell, text in zip(row.cells, cells, strict=True):
                    _fill(cell.paragraphs[0], text)
            for cell in table.rows[0].cells:
                for run in cell.paragraphs[0].runs:
                    run.bold = True
            word.add_paragraph()
        case _:
            assert_never(block)


def _fill(paragraph: WordParagraph, text: Inline) -> None:
    for span in text:
        run = paragraph.add_run(span.text)
        run.bold = span.bold or None
        run.italic = span.italic or None


def _repacked(saved: io.BytesIO) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as target:
        for name in source.namelist():
            member = zipfile.ZipInfo(name, MEMBER_DATE)
            member.create_system = 3
            target.writestr(member, source.read(name))
    return packed.getvalue()
