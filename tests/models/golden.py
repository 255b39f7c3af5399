"""The golden vectors: what sentence-transformers computes in fp32 for the texts of tests/unit/embedding/golden.json.

    python -m tests.models.golden FOLDER     writes tests/unit/embedding/golden.npz anew

FOLDER is a checkout of sentence-transformers/all-MiniLM-L6-v2.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent.parent / "unit" / "embedding"


def golden_texts() -> dict[str, list[str]]:
    """The texts by group: english, other."""
    texts: dict[str, list[str]] = json.loads((FOLDER / "golden.json").read_text(encoding="utf-8"))
    return texts


def reference_vectors(model: str, texts: list[str]) -> NDArray[np.float32]:
    """L2-normalised fp32 vectors by sentence-transformers, one text at a time, (n, 384)."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(model, device="cpu")
    rows = [encoder.encode([text], normalize_embeddings=True, show_progress_bar=False)[0] for text in texts]
    return np.asarray(rows, np.float32)


def main(model: str) -> None:
    """Write the vectors of every group."""
    vectors = {group: reference_vectors(model, texts) for group, texts in golden_texts().items()}
    np.savez(FOLDER / "golden.npz", **vectors)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1])
