"""Percentiles by the nearest rank: always a value that was measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The least of the sorted values (at least one) that `fraction` (0-1) of them do not exceed."""
    # 0.07 * 100 is a hair above 7, which must not count as 8.
    rank = math.ceil(fraction * len(ordered) - 1e-9)
    return ordered[max(1, rank) - 1]
