"""Readers: what is visible comes out in order, what is hidden does not, and no bytes whatever bring one down."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from typing import TYPE_CHECKING

import docx
import pptx
import pypdf
import pytest
from docx.enum.style import WD_STYLE_TYPE
from fpdf import FPDF
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pptx.util import Inches

from standard.corpus.document import Rejection, SourceDocument
from standard.corpus.readers import extracted
from standard.corpus.readers.docx import read_docx
from standard.corpus.readers.extracted import Unreadable
from standard.corpus.readers.html import read_html
from standard.corpus.readers.jsonl import read_jsonl
from standard.corpus.readers.markdown import read_markdown, read_text
from standard.corpus.readers.pdf import read_pdf
from standard.corpus.readers.pptx import read_pptx
from standard.corpus.sources import read_sources

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def html(body: str, head: str = "") -> str:
    return read_html(f"<!doctype html><html><head>{head}</head><body>{body}</body></html>".encode()).text


def test_html_keeps_headings_lists_and_tables() -> None:
    text = html(
        "<h1>Guide</h1><p>First\n line.<br>Second line.</p><h3>Steps</h3><ul><li>one</li><li>two <b>bold</b></li></ul>"
        "<table><tr><th>Name</th><th>Watts</th></tr><tr><td>A|B</td><td>65</td></tr></table><p>End.</p>"
    )
    assert text == (
        "# Guide\n\nFirst line.\nSecond line.\n\n### Steps\n\n- one\n- two bold\n\n"
        "| Name | Watts |\n| --- | --- |\n| A\\|B | 65 |\n\nEnd."
    )


@pytest.mark.parametrize(
    "hidden",
    [
        "<script>alert('x')</script>",
        "<style>p {}</style>",
        "<noscript>secret</noscript>",
        "<template>secret</template>",
        "<!-- secret -->",
        "<div hidden>secret</div>",
        "<div aria-hidden='true'>secret</div>",
        "<span style='display: none'>secret</span>",
        "<span style='color:red;VISIBILITY:hidden'>secret</span>",
        "<span style='opacity:0'>secret</span>",
        "<span style='font-size: 0px'>secret</span>",
        "<nav>secret</nav>",
        "<button>secret</button>",
        "<table hidden><tr><td>secret</td><td>b</td></tr></table>",
        "<table><tr><td>a</td><td style='display:none'>secret</td></tr></table>",
        "<h2 style='display:none'>secret</h2>",
    ],
)
def test_html_leaves_out_what_nobody_sees(hidden: str) -> None:
    text = html(f"<p>seen</p>{hidden}<p style='opacity: 0.5; font-size: 0.9em'>also seen</p>")
    assert "secret" not in text
    assert "alert" not in text
    assert text.startswith("seen")
    assert text.endswith("also seen")


def test_html_takes_the_main_content_where_it_is_marked() -> None:
    article = "The main thing is said here, at some length. " * 5
    assert html(f"<div>menu</div><main><p>{article}</p></main><div>more</div>") == article.strip()


def test_html_tables_that_only_place_things_are_no_tables() -> None:
    assert html("<table><tr><td><h2>Title</h2><p>Text.</p></td></tr></table>") == "## Title\n\nText."


def test_html_in_a_declared_encoding_is_read() -> None:
    page = "<html><head><meta charset='windows-1252'></head><body><p>Öl für 5 €</p></body></html>"
    assert read_html(page.encode("cp1252")).text == "Öl für 5 €"
    with pytest.raises(Unreadable, match="not UTF-8"):
        read_html("<p>Öl</p>".encode("latin-1"))
    with pytest.raises(Unreadable, match="encoding it declares"):
        read_html(b"<meta charset='martian'><p>\xff</p>")


def test_html_prefers_the_only_h1_as_title() -> None:
    assert read_html(b"<title>Guide - Site</title><h1>Guide</h1><p>x</p>").title == "Guide"
    assert read_html(b"<title>Guide - Site</title><h1>A</h1><h1>B</h1>").title == "Guide - Site"


def test_html_nested_very_deep_is_no_problem() -> None:
    assert html("<div>" * 1_900 + "bottom") == "bottom"
    assert "bottom" in html("<h1>" + "<b>" * 1_900 + "bottom")
    for page in ("<div>" * 100_000, "<ul><li>" * 100_000, "<b>" * 100_000):
        with pytest.raises(Unreadable, match="nested"):
            read_html(page.encode())
    assert html("<p>one" * 20_000).count("one") == 20_000


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=500) | st.text(max_size=300).map(lambda text: f"<p>{text}<table><tr>".encode("utf-8", "replace"))
)
def test_any_bytes_are_html_or_unreadable(data: bytes) -> None:
    with suppress(Unreadable):
        read_html(data)


def test_markdown_keeps_its_text_and_takes_front_matter() -> None:
    read = read_markdown(
        b"\xef\xbb\xbf---\r\nid: handbook\r\ntitle: The Handbook\r\nurl: https://x.example\r\ngroups: [staff]\r\n"
        b"version: 2\r\ndate: 2026-01-31\r\ntags: [a, b]\r\n---\r\n# Handbook\r\n\r\nText.\r\n"
    )
    assert (read.document_id, read.title, read.uri, read.groups) == (
        "handbook",
        "The Handbook",
        "https://x.example",
        ("staff",),
    )
    assert read.metadata == {"version": 2, "date": "2026-01-31", "tags": ["a", "b"]}
    assert read.text == "# Handbook\n\nText."


def test_a_rule_at_the_beginning_is_no_front_matter() -> None:
    assert read_markdown(b"---\nJust a line.\n---\nText.").text == "---\nJust a line.\n---\nText."
    assert read_markdown(b"---\n---\nText.").text == "Text."


@pytest.mark.parametrize(
    "matter",
    [
        "id: [unclosed",
        "a: &a [x]\nb: *c",
        "a: !!python/object:os.system x",
        "groups: {a: 1}",
        "a: &a [1,2,3,4,5,6,7,8,9]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c]",
    ],
)
def test_bad_front_matter_is_refused_with_a_reason(matter: str) -> None:
    with pytest.raises(Unreadable, match="front matter"):
        read_markdown(f"---\n{matter}\n---\ntext".encode())


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.text(max_size=100))
def test_any_front_matter_is_read_or_unreadable(matter: str, text: str) -> None:
    try:
        read = read_markdown(f"---\n{matter}\n---\n{text}".encode("utf-8", "replace"))
    except Unreadable:
        return
    json.dumps(read.metadata)


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"a\x00b", "NUL byte"), (b"caf\xe9\n", "not UTF-8: byte 0xe9 in line 1"), (b"ok\nna\xefve", "in line 2")],
)
def test_what_is_no_text_is_refused_with_its_place(data: bytes, reason: str) -> None:
    for reader in (read_text, read_markdown):
        with pytest.raises(Unreadable, match=reason):
            reader(data)


def test_utf_16_with_a_mark_and_old_line_ends_are_text() -> None:
    assert read_text("zwei\r\nZeilen\rdrei".encode("utf-16")).text == "zwei\nZeilen\ndrei"


def pdf(*pages: str, outline: tuple[str, ...] = (), title: str = "") -> io.BytesIO:
    document = FPDF()
    if title:
        document.set_title(title)
    for number, page in enumerate(pages):
        document.add_page()
        document.set_font("Helvetica", size=12)
        if number < len(outline) and outline[number]:
            document.start_section(outline[number])
        document.multi_cell(0, 8, page)
    return io.BytesIO(bytes(document.output()))


def test_pdf_pages_come_in_order_with_the_headings_of_the_outline() -> None:
    pages = ("Chapter One\nIt sails at noon.", "Chapter Two\nBring a coat.")
    read = read_pdf(pdf(*pages, outline=("Chapter One", "Chapter Two")))
    assert read.text == "# Chapter One\n\nIt sails at noon.\n\n# Chapter Two\n\nBring a coat."


def test_pdf_words_broken_at_a_line_end_are_put_together() -> None:
    read = read_pdf(pdf("The excel-\nlence of a well-known plan.\nIt is well-\nknown and co-\nOwned."))
    assert "The excellence of a well-known plan." in read.text
    assert "It is well-known and co-Owned." in read.text


def test_pdf_running_heads_and_page_numbers_are_left_out() -> None:
    read = read_pdf(pdf(*(f"ACME Manual {n}\nText of page {n} is here.\n{n}" for n in range(1, 6))))
    assert "ACME" not in read.text
    assert [line for line in read.text.split("\n") if line] == [f"Text of page {n} is here." for n in range(1, 6)]


def test_pdf_title_comes_from_its_properties() -> None:
    assert read_pdf(pdf("Text.", title="Annual report")).title == "Annual report"


def test_a_pdf_without_text_says_what_to_do() -> None:
    with pytest.raises(Unreadable, match="OCR"):
        read_pdf(pdf(""))


def test_an_encrypted_pdf_is_refused() -> None:
    writer = pypdf.PdfWriter(clone_from=pdf("Secret."))
    writer.encrypt("password", algorithm="RC4-128")
    stream = io.BytesIO()
    writer.write(stream)
    with pytest.raises(Unreadable, match="encrypted"):
        read_pdf(stream)


def word() -> io.BytesIO:
    document = docx.Document()
    document.core_properties.title = "Handbook"
    document.add_heading("Handbook", 0)
    document.add_heading("Leave", 2)
    paragraph = document.add_paragraph("Ask ")
    paragraph.add_run("hidden orders").font.hidden = True
    paragraph.add_run("your manager.")
    document.add_paragraph("first", style="List Bullet")
    document.add_paragraph("second", style="List Bullet")
    table = document.add_table(2, 3)
    for number, cell in enumerate(cell for row in table.rows for cell in row.cells):
        cell.text = f"c{number}"
    table.cell(1, 0).merge(table.cell(1, 1))
    stream = io.BytesIO()
    document.save(stream)
    stream.seek(0)
    return stream


def test_docx_keeps_headings_lists_and_tables_and_leaves_out_hidden_text() -> None:
    read = read_docx(word())
    assert read.title == "Handbook"
    assert read.text == (
        "# Handbook\n\n## Leave\n\nAsk your manager.\n\n- first\n- second\n\n"
        "| c0 | c1 | c2 |\n| --- | --- | --- |\n| c3 c4 | c5 |  |"
    )


def test_docx_tracked_insertions_count_and_deletions_do_not() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("The fee is ")
    from docx.oxml import parse_xml

    namespace = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    paragraph._p.append(parse_xml(f"<w:del {namespace}><w:r><w:delText>10</w:delText></w:r></w:del>"))
    paragraph._p.append(parse_xml(f"<w:ins {namespace}><w:r><w:t>12</w:t></w:r></w:ins>"))
    stream = io.BytesIO()
    document.save(stream)
    stream.seek(0)
    assert read_docx(stream).text == "The fee is 12"


def test_docx_styles_may_be_nameless() -> None:
    document = docx.Document()
    document.styles.add_style("Own", WD_STYLE_TYPE.PARAGRAPH)
    document.add_paragraph("Text.", style="Own")
    stream = io.BytesIO()
    document.save(stream)
    stream.seek(0)
    assert read_docx(stream).text == "Text."


def slides() -> io.BytesIO:
    presentation = pptx.Presentation()
    layout = presentation.slide_layouts[1]
    for number, hidden in ((1, False), (2, True), (3, False)):
        slide = presentation.slides.add_slide(layout)
        slide.shapes.title.text = f"Slide {number}"
        frame = slide.placeholders[1].text_frame
        frame.text = "first point"
        frame.add_paragraph().text = "second point"
        if hidden:
            slide._element.set("show", "0")
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(3), Inches(4), Inches(1)).table
    table.cell(0, 0).text, table.cell(0, 1).text, table.cell(1, 0).text = "Name", "Watts", "Charger"
    slide.notes_slide.notes_text_frame.text = "Say hello."
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "in a group"
    stream = io.BytesIO()
    presentation.save(stream)
    stream.seek(0)
    return stream


def test_pptx_keeps_titles_points_tables_and_notes_and_leaves_out_hidden_slides() -> None:
    assert read_pptx(slides()).text == (
        "## Slide 1\n\n- first point\n- second point\n\n## Slide 3\n\n- first point\n- second point\n\n"
        "| Name | Watts |\n| --- | --- |\n| Charger |  |\n\nin a group\n\nNotes:\nSay hello."
    )


def two_pages() -> io.BytesIO:
    return pdf("One page.", "Two.", outline=("One page.",))


@pytest.mark.parametrize("suffix", [".docx", ".pptx", ".pdf"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_are_reported_and_never_more(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    makers: dict[str, Callable[[], io.BytesIO]] = {".docx": word, ".pptx": slides, ".pdf": two_pages}
    whole = makers[suffix]()
    content = bytearray(whole.getvalue())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(1, len(content))) :]
    file = tmp_path / f"damaged{suffix}"
    file.write_bytes(content)
    [item] = list(read_sources([str(file)]))
    assert isinstance(item, (SourceDocument, Rejection))


def test_an_archive_that_unpacks_to_gigabytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extracted, "MAX_UNPACKED_BYTES", 500_000)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(6):
            archive.writestr(f"{number}.xml", b"\0" * 100_000)
    stream.seek(0)
    with pytest.raises(Unreadable, match="more than it is safe to read"):
        read_docx(stream)


def test_jsonl_lines_without_end_are_bounded_and_counted() -> None:
    data = b'{"id": "a", "text": "x"}\n' + b"y" * 300_000 + b'\n{"id": "b", "text": "z"}\n'
    items = list(read_jsonl(io.BytesIO(data), source="s", max_bytes=1000))
    assert [type(item) for item in items] == [SourceDocument, Rejection, SourceDocument]
    assert [item.line for item in items] == [1, 2, 3]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.binary(max_size=80)
        | st.dictionaries(
            st.sampled_from(["id", "title", "text", "uri", "metadata", "groups"]),
            st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(max_size=5), max_size=3),
        ).map(lambda row: json.dumps(row).encode()),
        max_size=8,
    )
)
def test_any_lines_are_documents_or_rejections_with_their_numbers(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    items = list(read_jsonl(io.BytesIO(data), source="s", max_bytes=100))
    physical = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert [item.line for item in items] == [n + 1 for n, line in enumerate(physical) if line.strip()]
