"""The shipped model is what its manifest says, and nothing else is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from standard.domain.errors import Damaged
from standard.embedding.artifact import FOLDER, read_artifact


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("manifest.json", "model.onnx", "tokenizer.json"):
        shutil.copy(FOLDER / name, tmp_path / name)
    return tmp_path


def test_the_shipped_model_matches_its_manifest() -> None:
    artifact = read_artifact()
    assert (artifact.id, artifact.dimensions, artifact.max_tokens) == ("all-MiniLM-L6-v2-int8", 384, 256)
    assert artifact.checksum == json.loads((FOLDER / "manifest.json").read_bytes())["files"]["model.onnx"]


def test_model_licence_and_card_are_shipped_beside_it() -> None:
    assert "Apache License" in (FOLDER / "LICENSE").read_text(encoding="utf-8")
    assert read_artifact().checksum in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_one_flipped_bit_is_refused_and_the_file_named(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(Damaged, match=f"{name} is damaged"):
        read_artifact(copy)


def test_a_cut_file_is_refused_with_its_size(copy: Path) -> None:
    (copy / "model.onnx").write_bytes((copy / "model.onnx").read_bytes()[:1000])
    with pytest.raises(Damaged, match="1000 bytes"):
        read_artifact(copy)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "manifest.json"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(Damaged, match=f"{name} cannot be read"):
        read_artifact(copy)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": {}}', '{"files": {"model.onnx": 1}}', "\ud83d"])
def test_a_manifest_that_is_none_is_refused(copy: Path, text: str) -> None:
    (copy / "manifest.json").write_bytes(text.encode("utf-16", "surrogatepass") if "\ud83d" in text else text.encode())
    with pytest.raises(Damaged, match="no manifest"):
        read_artifact(copy)
