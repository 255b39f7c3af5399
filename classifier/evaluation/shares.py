"""What routing buys: share of questions sent agentic against share whose evidence is complete.

A perfect loop is assumed: a question sent agentic ends with complete evidence, one sent single-shot has what its first
search brought. The curve then runs from the single-shot's own completeness (nothing sent) to 1 (everything sent);
chance is the straight line between, and an oracle sends exactly what lacks something first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def complete_share(scores: NDArray[np.float64], incomplete: NDArray[np.bool_], share: float) -> float:
    """Return the share with complete evidence when the `share` (0-1) of highest score goes agentic, ties at random.

    Ties are counted at their expected value, so that a constant score is chance.
    """
    count = len(scores)
    if count == 0:
        return float("nan")
    sent = share * count
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    lacking = incomplete[order].astype(np.float64)
    # within a tie every question is sent with the same chance
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    sizes = np.diff(np.concatenate([starts, [count]]))
    sums = np.add.reduceat(lacking, starts)
    room = np.clip(sent - starts, 0.0, sizes)
    mended = float((sums * room / sizes).sum())
    return 1.0 - (float(incomplete.sum()) - mended) / count


def random_share(incomplete: NDArray[np.bool_], share: float) -> float:
    """Return what sending at random brings."""
    return 1.0 - float(incomplete.mean()) * (1.0 - share)


def oracle_share(incomplete: NDArray[np.bool_], share: float) -> float:
    """Return what sending what lacks something first brings."""
    return 1.0 - max(0.0, float(incomplete.mean()) - share)


def gap_closed(scores: NDArray[np.float64], incomplete: NDArray[np.bool_], share: float) -> float | None:
    """Return which part of the way from chance to the oracle the scores go; None where there is no way to go."""
    chance, oracle = random_share(incomplete, share), oracle_share(incomplete, share)
    if oracle - chance < 1e-12:
        return None
    return (complete_share(scores, incomplete, share) - chance) / (oracle - chance)


def curve(scores: NDArray[np.float64], incomplete: NDArray[np.bool_], *, points: int = 21) -> list[dict[str, float]]:
    """Return the curve as {agentic, complete} pairs at evenly spaced shares from 0 to 1."""
    shares = np.linspace(0.0, 1.0, points)
    return [{"agentic": float(share), "complete": complete_share(scores, incomplete, float(share))} for share in shares]
