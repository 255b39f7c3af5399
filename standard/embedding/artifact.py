"""The shipped model on disk, loaded only if it is what its manifest says.

Failure this prevents: a truncated download, a stray edit or a Git LFS pointer in the place of the model gives vectors
that look fine and find nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from standard.domain.errors import Damaged

FOLDER = Path(__file__).parent / "model"
MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
_WAY_OUT = "reinstall pointsman, or restore the folder from the repository"


@dataclass(frozen=True, slots=True)
class Artifact:
    """The model's files, verified. `checksum` is the sha256 of `model`; `max_tokens` counts special tokens."""

    id: str
    checksum: str
    dimensions: int
    max_tokens: int
    model: Path
    tokenizer: Path


def read_artifact(folder: Path = FOLDER) -> Artifact:
    """Check the files of a model's folder against `manifest.json`, some 20 ms. Raises Damaged, which names the file."""
    manifest_path = folder / "manifest.json"
    try:
        manifest = json.loads(manifest_path.read_bytes())
        sums = {name: str(manifest["files"][name]) for name in (MODEL_FILE, TOKENIZER_FILE)}
        name, dimensions, max_tokens = str(manifest["id"]), int(manifest["dimensions"]), int(manifest["max_tokens"])
    except OSError as error:
        raise Damaged(f"{manifest_path} cannot be read ({error.strerror}); {_WAY_OUT}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{manifest_path} is no manifest of an embedding model; {_WAY_OUT}") from error
    for file, expected in sums.items():
        _verify(folder / file, expected)
    return Artifact(name, sums[MODEL_FILE], dimensions, max_tokens, folder / MODEL_FILE, folder / TOKENIZER_FILE)


def _verify(path: Path, expected: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise Damaged(f"{path} cannot be read ({error.strerror}); {_WAY_OUT}") from error
    if found != expected:
        raise Damaged(f"{path} is damaged: sha256 {found}, {size} bytes; expected {expected}; {_WAY_OUT}")
