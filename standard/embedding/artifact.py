"""The shipped model on disk, read only as its manifest says it is.

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
    """The model's parts, verified. `checksum` is the sha256 of `model`; `max_tokens` counts special tokens."""

    id: str
    checksum: str
    dimensions: int
    max_tokens: int
    model: bytes
    tokenizer: bytes


def read_artifact(folder: Path = FOLDER) -> Artifact:
    """Read a model's folder and check every file against `manifest.json`. Raises Damaged, which names the file."""
    manifest_path = folder / "manifest.json"
    try:
        manifest = json.loads(manifest_path.read_bytes())
        sums = {name: str(manifest["files"][name]) for name in (MODEL_FILE, TOKENIZER_FILE)}
        identity = str(manifest["id"]), int(manifest["dimensions"]), int(manifest["max_tokens"])
    except OSError as error:
        raise Damaged(f"{manifest_path} cannot be read ({error.strerror}); {_WAY_OUT}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{manifest_path} is no manifest of an embedding model; {_WAY_OUT}") from error
    data = {name: _read_verified(folder / name, expected) for name, expected in sums.items()}
    name, dimensions, max_tokens = identity
    return Artifact(name, sums[MODEL_FILE], dimensions, max_tokens, data[MODEL_FILE], data[TOKENIZER_FILE])


def _read_verified(path: Path, expected: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path} cannot be read ({error.strerror}); {_WAY_OUT}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise Damaged(f"{path} is damaged: sha256 {found}, {len(data)} bytes; expected {expected}; {_WAY_OUT}")
    return data
