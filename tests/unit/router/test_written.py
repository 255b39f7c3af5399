"""A file is written whole or not at all, and a private one is nobody else's from its first byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from router.written import write_at_once


@pytest.mark.parametrize("private", [True, False])
def test_a_file_takes_the_old_ones_place_and_leaves_nothing_beside_it(tmp_path: Path, *, private: bool) -> None:
    path = tmp_path / "labels.jsonl"
    for text in ("one\n", "zwei – 二\n"):
        write_at_once(path, text, private=private)
        assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == (0o600 if private else 0o666 & ~umask)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.md"
    write_at_once(path, "whole")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_at_once(path, "half")
    assert path.read_text(encoding="utf-8") == "whole"
    assert list(tmp_path.iterdir()) == [path]
