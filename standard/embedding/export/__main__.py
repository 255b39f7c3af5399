"""Make the shipped model from the official weights.

    python -m standard.embedding.export FOLDER [--output DIR]

FOLDER holds `model.safetensors` and `tokenizer.json` of sentence-transformers/all-MiniLM-L6-v2; both must have the
official checksums. The packages onnx, onnxruntime, tokenizers and numpy do the work; torch is not needed. Written are
`model.onnx`, `tokenizer.json` and `manifest.json` with the checksums that loading verifies.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from standard.embedding.export.graph import all_sites, float_model, int8_model
from standard.embedding.export.quantise import quantise_site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from standard.embedding.export.graph import Floats, Int8Site

OFFICIAL = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
MODEL_ID = "all-MiniLM-L6-v2-int8"
MAX_TOKENS = 256
BALANCE = 0.75
HERE = Path(__file__).parent.parent


def verified(folder: Path, name: str) -> bytes:
    """Read an official file; stop where it is not the official one."""
    data = (folder / name).read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != OFFICIAL[name]:
        raise SystemExit(f"{folder / name}: sha256 {found}, the official file has {OFFICIAL[name]}")
    return data


def read_safetensors(data: bytes) -> dict[str, Floats]:
    """The float32 tensors of a safetensors file (format: huggingface.co/docs/safetensors); others are left out."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            flat = np.frombuffer(data, "<f4", offset=8 + length + begin, count=(end - begin) // 4)
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def activations(weights: Mapping[str, Floats], tokenizer: bytes, texts: list[str]) -> dict[str, Floats]:
    """What enters each site, (tokens, k), when the float model reads `texts`."""
    import onnxruntime
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_buffer(tokenizer)
    encoder.no_padding()
    encoder.enable_truncation(MAX_TOKENS)
    model, names = float_model(weights)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    seen: dict[str, list[Floats]] = {name: [] for name in names}
    for text in texts:
        ids = np.array([encoder.encode(text).ids], np.int64)
        feed = {"input_ids": ids, "lengths": np.array([ids.shape[1]], np.int32)}
        for name, value in zip(names, session.run(list(names.values()), feed), strict=True):
            seen[name].append(value[0])
    return {name: np.concatenate(values) for name, values in seen.items()}


def quantised(weights: Mapping[str, Floats], tokenizer: bytes, texts: list[str]) -> dict[str, Int8Site]:
    """The whole plan of the int8 model."""
    seen = activations(weights, tokenizer, texts)
    return {site.name: quantise_site(weights, site, seen[site.name], balance=BALANCE) for site in all_sites()}


def main(arguments: list[str]) -> None:
    """Make the model and write it."""
    parser = argparse.ArgumentParser(prog="python -m standard.embedding.export", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds the official model.safetensors and tokenizer.json")
    parser.add_argument("--output", type=Path, default=HERE / "model", help="where to write (default: %(default)s)")
    options = parser.parse_args(arguments)
    weights = read_safetensors(verified(options.folder, "model.safetensors"))
    tokenizer = verified(options.folder, "tokenizer.json")
    texts = (HERE / "export" / "calibration.txt").read_text(encoding="utf-8").splitlines()
    notes = {
        "source": "sentence-transformers/all-MiniLM-L6-v2",
        "source_sha256": OFFICIAL["model.safetensors"],
        "licence": "Apache-2.0",
        "changes": "linear layers and word embeddings quantised to int8",
    }
    model = int8_model(weights, quantised(weights, tokenizer, texts), notes).SerializeToString(deterministic=True)
    files = {"model.onnx": model, "tokenizer.json": tokenizer}
    manifest = {
        "id": MODEL_ID,
        "dimensions": 384,
        "max_tokens": MAX_TOKENS,
        "licence": "Apache-2.0",
        "source": {"model": "sentence-transformers/all-MiniLM-L6-v2", "sha256": OFFICIAL},
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    options.output.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (options.output / name).write_bytes(data)
    (options.output / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
