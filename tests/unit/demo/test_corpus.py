"""The demo corpus keeps the promises that its README makes."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import docx
import pytest
from docx.table import Table
from pypdf import PdfReader
from selectolax.lexbor import LexborHTMLParser

from deploy.demo.build import CORPUS, SOURCES, drift, main, render_corpus, write_corpus
from deploy.demo.document import ID_PATTERN, Document, SourceError, read_document, read_documents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENTS = read_documents(SOURCES)
RENDERED = render_corpus()


def plain(text: str) -> str:
    """Words alone: no Markdown marks, no heading or list markers, single spaces."""
    text = re.sub(r"^\s*(?:(?:#+|>|-|\u2022)\s+)?(?:\d{1,2}\.\s+)?", "", text, flags=re.MULTILINE)
    text = re.sub(r"\|[-| ]+\|\n", "", text)
    text = re.sub(r"(?<!\w)\*{1,2}|\*{1,2}(?!\w)", "", text)
    return " ".join(text.replace("|", " ").split())


def pdf_text(path: Path) -> str:
    """The text of a PDF without running heads and page numbers."""
    pages = [page.extract_text() for page in PdfReader(path).pages]
    furniture = re.compile(r"^(?:Tessary Sound Ferries +\S+|Page \d+ of \d+)\n?", re.MULTILINE)
    return "\n".join(furniture.sub("", page) for page in pages)


def docx_text(path: Path) -> str:
    """Paragraphs and table rows of a Word file in reading order."""

    def lines() -> Iterator[str]:
        for part in docx.Document(str(path)).iter_inner_content():
            if isinstance(part, Table):
                yield from (" ".join(cell.text for cell in row.cells) for row in part.rows)
            else:
                yield part.text

    return "\n".join(lines())


def html_text(path: Path) -> str:
    """The article of an HTML page."""
    article = LexborHTMLParser(path.read_bytes()).css_first("article")
    assert article is not None
    return article.text(separator=" ")


def corpus_text(document: Document) -> str:
    """What a reader of the rendered file sees."""
    path = CORPUS / f"{document.id}.{document.format}"
    match document.format:
        case "pdf":
            return pdf_text(path)
        case "docx":
            return docx_text(path)
        case "html":
            return html_text(path)
        case "md":
            return path.read_text(encoding="utf-8")


def letters(text: str) -> str:
    """Text without white space: extraction may put a space beside a change of style."""
    return "".join(plain(text).split())


def test_the_committed_corpus_is_what_the_sources_render_to() -> None:
    assert drift(RENDERED) == []


def test_rendering_twice_gives_the_same_bytes() -> None:
    assert render_corpus() == RENDERED


def test_the_corpus_has_the_promised_size() -> None:
    assert len(DOCUMENTS) >= 88
    assert sum(map(len, RENDERED.values())) < 4_000_000


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.id)
def test_every_document_has_150_to_800_words(document: Document) -> None:
    assert 150 <= document.word_count <= 800


def test_formats_have_the_promised_shares() -> None:
    shares = {name: count / len(DOCUMENTS) for name, count in Counter(doc.format for doc in DOCUMENTS).items()}
    assert shares == pytest.approx({"md": 0.40, "html": 0.25, "pdf": 0.18, "docx": 0.17}, abs=0.05)


def test_some_pdfs_have_two_pages() -> None:
    counts = Counter(len(PdfReader(path).pages) for path in CORPUS.glob("*.pdf"))
    assert counts[2] >= 5


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.id)
def test_no_sentence_is_lost_on_the_way_into_a_format(document: Document) -> None:
    assert letters(document.body) in letters(corpus_text(document))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.id)
def test_a_file_carries_title_and_date_where_its_format_keeps_them(document: Document) -> None:
    path = CORPUS / f"{document.id}.{document.format}"
    match document.format:
        case "pdf":
            metadata = PdfReader(path).metadata
            assert metadata is not None
            assert metadata.title == document.title
            assert metadata.creation_date is not None
            assert metadata.creation_date.date() == document.date
        case "docx":
            properties = docx.Document(str(path)).core_properties
            assert properties.title == document.title
            assert properties.identifier == document.id
            assert properties.created is not None
            assert properties.created.date() == document.date
        case "html":
            page = LexborHTMLParser(path.read_bytes())
            title, date = page.css_first("title"), page.css_first('meta[name="date"]')
            assert title is not None
            assert title.text().startswith(document.title)
            assert date is not None
            assert date.attributes["content"] == document.date.isoformat()
        case "md":
            assert f"\ndate: {document.date}\n" in path.read_text(encoding="utf-8")


def test_html_pages_have_furniture_around_the_article() -> None:
    for path in CORPUS.glob("*.html"):
        page = LexborHTMLParser(path.read_bytes())
        assert all(page.css_first(name) is not None for name in ("nav", "header", "footer", "main article h1")), path


def test_word_files_use_real_headings_lists_and_tables() -> None:
    files = [docx.Document(str(path)) for path in CORPUS.glob("*.docx")]
    styles = Counter(p.style.name for file in files for p in file.paragraphs if p.style is not None)
    assert {"Title", "Heading 1", "List Bullet", "List Number"} <= styles.keys()
    assert sum(len(file.tables) for file in files) >= 5


def test_titles_are_unique_and_ids_say_what_a_document_is() -> None:
    assert len({document.title for document in DOCUMENTS}) == len(DOCUMENTS)
    assert all(ID_PATTERN.fullmatch(document.id) for document in DOCUMENTS)


def test_superseded_documents_are_older_than_a_current_one_of_their_kind() -> None:
    superseded = [document for document in DOCUMENTS if document.metadata.get("status") == "superseded"]
    assert len(superseded) >= 4
    for old in superseded:
        assert any(
            new.metadata.get("status") == "current"
            and new.date > old.date
            and new.metadata["kind"] == old.metadata["kind"]
            and new.metadata["department"] == old.metadata["department"]
            for new in DOCUMENTS
        ), old.id


GOOD = """---
id: pol-900-kites
title: Kites
date: 2024-02-29
format: md
department: Terminals
kind: policy
---

No kites on the pier.
"""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("---\nid", "id"), "front matter must stand"),
        (("\n---\n\n", "\n\n"), "front matter must stand"),
        (("title: Kites\n", ""), "lacks title"),
        (("title: Kites", "title Kites"), "is not a new 'key: value'"),
        (("title: Kites", "title: Kites\ntitle: Kites"), "is not a new 'key: value'"),
        (("pol-900-kites", "pol-901-kites"), "the id must be the file's stem"),
        (("format: md", "format: odt"), "format 'odt' is not one of"),
        (("2024-02-29", "2023-02-29"), "day is out of range"),
    ],
)
def test_a_malformed_source_is_refused_by_name(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    path = tmp_path / "pol-900-kites.md"
    path.write_text(GOOD.replace(*change, 1), encoding="utf-8")
    with pytest.raises(SourceError, match=complaint) as caught:
        read_document(path)
    assert "pol-900-kites.md" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("```\ncode\n```\n", "'fence' is not rendered"),
        ("A [link](https://example.org).\n", "'link_open' is not rendered"),
        ("- one\n  - two\n", "lists within lists"),
        ("- one\n\n  more of one\n", "a list item must hold one paragraph"),
    ],
)
def test_markdown_that_a_format_would_drop_is_refused(tmp_path: Path, body: str, complaint: str) -> None:
    path = tmp_path / "pol-900-kites.md"
    path.write_text(GOOD + "\n" + body, encoding="utf-8")
    with pytest.raises(SourceError, match=complaint):
        read_document(path).blocks()


def test_writing_repairs_a_corpus_and_touches_nothing_that_is_right(tmp_path: Path) -> None:
    rendered = {"a.md": b"one", "b.md": b"two"}
    assert write_corpus(rendered, tmp_path) == ["a.md", "b.md"]
    (tmp_path / "a.md").write_bytes(b"edited by hand")
    (tmp_path / "left-over.md").write_bytes(b"")
    assert drift(rendered, tmp_path) == ["a.md", "left-over.md"]
    assert write_corpus(rendered, tmp_path) == ["a.md", "left-over.md"]
    assert write_corpus(rendered, tmp_path) == []


def test_the_check_command_reports_an_up_to_date_corpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    assert f"{len(DOCUMENTS)} documents" in capsys.readouterr().out
