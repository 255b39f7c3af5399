"""From names on a command line to documents."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from standard.corpus.document import Rejection, SourceDocument
from standard.corpus.sources import in_thread, read_sources

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def tree(folder: Path) -> None:
    (folder / "guides").mkdir()
    (folder / ".git").mkdir()
    (folder / "a.md").write_text("# Alpha\n\nText of a.")
    (folder / "guides" / "set_up.txt").write_text("Text of the guide.")
    (folder / "guides" / "own.md").write_text("---\nid: my-own-id\n---\nText.")
    (folder / "rows.jsonl").write_text('{"id": "row", "title": "Row", "text": "Text of the row."}\n')
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".git" / "config.md").write_text("hidden")


def ids(paths: list[str]) -> list[str]:
    return [
        item.document_id if isinstance(item, SourceDocument) else f"! {item.reason}" for item in read_sources(paths)
    ]


def test_ids_are_paths_below_the_folder_without_ending(tmp_path: Path) -> None:
    tree(tmp_path)
    assert ids([str(tmp_path)]) == ["a", "my-own-id", "guides/set_up", "row"]


def test_titles_come_from_headings_else_from_names(tmp_path: Path) -> None:
    tree(tmp_path)
    titles = {
        item.document_id: item.title for item in read_sources([str(tmp_path)]) if isinstance(item, SourceDocument)
    }
    assert titles == {"a": "Alpha", "guides/set_up": "set up", "my-own-id": "own", "row": "Row"}


def test_a_file_that_is_named_has_its_own_name_as_id(tmp_path: Path) -> None:
    tree(tmp_path)
    assert ids([str(tmp_path / "guides" / "set_up.txt")]) == ["set_up"]


def test_globs_count_from_their_first_wildcard(tmp_path: Path) -> None:
    tree(tmp_path)
    assert ids([f"{tmp_path}/**/*.txt"]) == ["guides/set_up"]
    assert ids([f"{tmp_path}/guides/*.txt"]) == ["set_up"]
    assert ids([f"{tmp_path}/*.xyz"]) == ["! no file matches"]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    tree(tmp_path)
    assert ids([str(tmp_path / "a.md"), str(tmp_path), str(tmp_path / "a.md")]).count("a") == 1


def test_what_cannot_be_read_is_reported_and_the_rest_comes(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "bad.txt").write_bytes(b"a\x00b")
    items = list(read_sources([str(tmp_path / "missing"), str(tmp_path / "picture.png"), str(tmp_path)]))
    rejected = [item for item in items if isinstance(item, Rejection)]
    assert [row.reason.split(" (")[0] for row in rejected] == [
        "there is no such file or folder",
        "there is no reader for '.png'",
        "holds a NUL byte",
    ]
    assert rejected[2].document_id == "bad"
    assert len(items) == 7


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("x" * 2000)
    [item] = list(read_sources([str(tmp_path)], max_bytes=1000))
    assert isinstance(item, Rejection)
    assert "has 2000 bytes" in item.reason


def test_standard_input_is_jsonl(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(b'{"id": "x", "text": "y"}\nnonsense\n')

    monkeypatch.setattr(sys, "stdin", Input)
    first, second = read_sources(["-"])
    assert (first.source, first.line) == ("stdin", 1)
    assert isinstance(second, Rejection)
    assert (second.source, second.line) == ("stdin", 2)


async def test_reading_in_a_thread_gives_the_same_in_order(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number:03}.txt").write_text(f"Text {number}.")
    expected = ids([str(tmp_path)])
    assert [item.document_id async for item in in_thread(read_sources([str(tmp_path)]), at_once=7)] == expected
