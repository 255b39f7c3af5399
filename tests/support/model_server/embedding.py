"""Deterministic embeddings: the same text has the same vector everywhere, texts that share words are near."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray


def embed(text: str, dimensions: int) -> NDArray[np.float32]:
    """A unit vector (dimensions,): the sum of one pseudo-random vector a word."""
    total = np.full(dimensions, 1e-6, dtype=np.float64)
    for word in re.findall(r"\w+", text.casefold()):
        seed = int.from_bytes(hashlib.sha256(word.encode("utf-8", "replace")).digest()[:8], "big")
        total += np.random.default_rng(seed).standard_normal(dimensions)
    return (total / np.linalg.norm(total)).astype(np.float32)


def embeddings_response(body: dict[str, Any], default_dimensions: int) -> dict[str, Any]:
    """The body of a /v1/embeddings response, as floats or base64 as asked."""
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    dimensions = int(body.get("dimensions") or default_dimensions)
    vectors = [embed(text, dimensions) for text in texts]
    encoded = [
        base64.b64encode(vector.astype("<f4").tobytes()).decode()
        if body.get("encoding_format") == "base64"
        else vector.tolist()
        for vector in vectors
    ]
    tokens = sum(len(text) // 4 + 1 for text in texts)
    return {
        "object": "list",
        "model": body.get("model", ""),
        "data": [{"object": "embedding", "index": index, "embedding": value} for index, value in enumerate(encoded)],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
