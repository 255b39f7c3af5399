"""A routing model on disk: a folder of plain data, checked whole before anything is decided with it.

    manifest.json   what it is: version, embedder, inputs, thresholds, figures, training, sha256 of every other file
    *.npz           arrays of numbers, read with allow_pickle off
    *.onnx, *.json  the text encoder and its tokenizer
    MODEL_CARD.md   the same for people

Prevents a router that decides with a damaged file, or on vectors of an embedder it never saw: both look like answers.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.errors import ArtifactDamaged, EmbedderMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

FORMAT = 1
MANIFEST = "manifest.json"
CARD = "MODEL_CARD.md"
MAX_BYTES = 64 * 1024 * 1024
"""A file beyond this is no routing model."""
SHIPPED = Path(__file__).parent / "artifacts" / "shipped"
"""The folder of the model that comes with the package."""


@dataclass(frozen=True, slots=True)
class Embedder:
    """Which embedder made the vectors: its name, the checksum of its weights, and the vectors' length."""

    id: str
    checksum: str
    dimension: int


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact as read: `manifest` is the whole JSON object, `arrays` every array of its npz files by name.

    `blobs` are the contents of its other files, by name.
    """

    folder: Path
    version: str
    embedder: Embedder
    manifest: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = field(repr=False)
    blobs: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def read_artifact(folder: Path, embedder: Embedder | None = None) -> Artifact:
    """Read and check an artifact.

    With `embedder` its vectors must come from that embedder. Raises ArtifactDamaged (missing or changed file, wrong
    format, a number that is not finite) or EmbedderMismatch.
    """
    manifest = _manifest(folder)
    if manifest.get("format") != FORMAT:
        raise ArtifactDamaged(
            f"{folder / MANIFEST}: format {manifest.get('format')!r} is not {FORMAT}, which this release reads;"
            " train the model anew"
        )
    try:
        version = str(manifest["version"])
        made_for = Embedder(
            str(manifest["embedder"]["id"]),
            str(manifest["embedder"]["checksum"]),
            int(manifest["embedder"]["dimension"]),
        )
        files = {str(name): str(digest) for name, digest in manifest["files"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactDamaged(f"{folder / MANIFEST} lacks or garbles {error}; {_WAY_OUT}") from None
    if embedder is not None:
        require_embedder(folder, made_for, embedder)
    arrays: dict[str, NDArray[Any]] = {}
    blobs: dict[str, bytes] = {}
    for name, digest in files.items():
        content = _content(folder, name)
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            raise ArtifactDamaged(f"{folder / name} was changed: sha256 {found[:12]}…, not {digest[:12]}…; {_WAY_OUT}")
        if name.endswith(".npz"):
            arrays |= _arrays(folder / name, content)
        else:
            blobs[name] = content
    return Artifact(folder, version, made_for, manifest, arrays, blobs)


def require_embedder(folder: Path, made_for: Embedder, given: Embedder) -> None:
    """Raise EmbedderMismatch unless both are the same."""
    if made_for == given:
        return
    raise EmbedderMismatch(
        f"the routing model in {folder} was trained on vectors of {made_for.id} ({made_for.dimension} numbers, checksum"
        f" {made_for.checksum[:12]}…), but the embedder in use is {given.id} ({given.dimension} numbers, checksum"
        f" {given.checksum[:12]}…); configure that embedder, or run `pointsman train` with this one"
    )


def write_artifact(
    folder: Path,
    manifest: Mapping[str, Any],
    files: Mapping[str, Mapping[str, NDArray[Any]]],
    card: str,
    blobs: Mapping[str, bytes] | None = None,
) -> None:
    """Write an artifact; `files` are arrays by name by file name (`.npz`), `blobs` contents of other files.

    The manifest is written last and at once, so that a reader finds the whole or the old one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    digests: dict[str, str] = {}
    contents = {name: _packed(arrays) for name, arrays in files.items()} | dict(blobs or {})
    for name, content in contents.items():
        _replace(folder / name, content)
        digests[name] = hashlib.sha256(content).hexdigest()
    _replace(folder / CARD, card.encode())
    whole = {"format": FORMAT, **manifest, "files": digests}
    _replace(folder / MANIFEST, (json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def digest_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the sha256 over names, shapes and values of arrays: the same numbers give the same version anywhere."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


_WAY_OUT = "restore the folder from the release, or train the model anew"


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        value = json.loads(_content(folder, MANIFEST).decode())
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ArtifactDamaged(f"{folder / MANIFEST} is no JSON: {error}; {_WAY_OUT}") from None
    if not isinstance(value, dict):
        raise ArtifactDamaged(f"{folder / MANIFEST} holds no object; {_WAY_OUT}")
    return value


def _content(folder: Path, name: str) -> bytes:
    path = folder / name
    if Path(name).name != name:
        raise ArtifactDamaged(f"{folder / MANIFEST} names {name!r}, which is not a file beside it; {_WAY_OUT}")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ArtifactDamaged(f"{path} is larger than {MAX_BYTES} bytes, which no routing model is; {_WAY_OUT}")
        return path.read_bytes()
    except OSError as error:
        raise ArtifactDamaged(f"{path} cannot be read ({error.strerror}); {_WAY_OUT}") from None


def _arrays(path: Path, content: bytes) -> dict[str, NDArray[Any]]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as packed:
            arrays = {name: packed[name] for name in packed.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ArtifactDamaged(f"{path} is no set of arrays: {error}; {_WAY_OUT}") from None
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.number) and array.dtype != np.bool_:
            raise ArtifactDamaged(f"{path}: {name} holds {array.dtype}, not numbers; {_WAY_OUT}")
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise ArtifactDamaged(f"{path}: {name} holds a number that is not finite; {_WAY_OUT}")
    return arrays


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and not all(math.isfinite(x) for x in (array.min(), array.max())):
            raise ValueError(f"{name} holds a number that is not finite")
    buffer = io.BytesIO()
    # savez stamps its members with a fixed date, so that equal arrays give equal bytes
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)
