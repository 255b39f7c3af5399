"""Query vectors as bytes: how they travel through proposals, guards and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentic.actions import MAX_QUERY_LENGTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TEXT = MAX_QUERY_LENGTH
"""Code points of the longest text that is embedded as a query."""


def vector_of(raw: bytes) -> NDArray[np.float32]:
    """The vector (d,) that `raw` holds as float32 bytes."""
    return np.frombuffer(raw, dtype=np.float32)


def as_bytes(vectors: NDArray[np.float32]) -> tuple[bytes, ...]:
    """The rows of (n, d) as float32 bytes."""
    return tuple(row.astype(np.float32, copy=False).tobytes() for row in vectors)
