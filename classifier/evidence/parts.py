"""Where the question's parts are at home: all in one document, or each in its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from classifier.evidence.documents import Documents, mean, places_by
from classifier.evidence.look import SHOWN, Look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def parts_at_home(
    kinds: Sequence[str], parts: Sequence[NDArray[np.float32]], look: Look, docs: Documents
) -> dict[str, float]:
    """Return the features of each kind of parts, whose vectors (rows, d) are given kind by kind."""
    values: dict[str, float] = {}
    rows = np.concatenate(parts)
    if not len(rows):
        for kind in kinds:
            values |= _of_none(kind, docs)
        return values
    affinity = rows @ look.vectors.T
    best = docs.best(affinity)
    nearest = np.maximum.reduce(best, axis=1)
    beyond: list[float] = (nearest - np.maximum.reduce(affinity[:, :SHOWN], axis=1)).tolist()
    homes: list[int] = best.argmax(axis=1).tolist()
    three = [
        [docs.number[place] for place in places]
        for places in np.argsort(-affinity, axis=1, kind="stable")[:, :3].tolist()
    ]
    start = 0
    for kind, vectors in zip(kinds, parts, strict=True):
        end = start + len(vectors)
        if start == end:
            values |= _of_none(kind, docs)
            continue
        own = slice(start, end)
        loss, pair = _in_common(best[own], nearest[own])
        near: list[float] = nearest[own].tolist()
        seen = [[document in docs.shown for document in documents] for documents in three[own]]
        values |= {
            f"{kind}_homes": float(len(set(homes[own]))),
            f"{kind}_loss": mean(loss),
            f"{kind}_loss_most": max(loss),
            f"{kind}_pair": pair,
            f"{kind}_near": mean(near),
            f"{kind}_least": min(near),
            f"{kind}_shown_first": sum(row[0] for row in seen) / len(seen),
            f"{kind}_shown_three": sum(map(sum, seen)) / (len(seen) * len(seen[0])),
            f"{kind}_same": sum(documents[0] == 0 for documents in three[own]) / len(seen),
            f"{kind}_beyond": mean(beyond[own]),
            f"{kind}_beyond_most": max(beyond[own]),
        }
        start = end
    return values


def _in_common(best: NDArray[np.float32], nearest: NDArray[np.float32]) -> tuple[list[float], float]:
    """Return what each part loses when one document must meet all, and what two documents gain over one."""
    if len(best) == 1:  # its own best document meets it, and no second one adds to that
        return [0.0], 0.0
    together = np.add.reduce(best, axis=0) / np.float32(len(best))
    common = int(together.argmax())
    loss: list[float] = (nearest - best[:, common]).tolist()
    leading = best[:, places_by(together.tolist())[:SHOWN]]
    pairs = np.add.reduce(np.maximum(leading[:, :, None], leading[:, None, :]), axis=0)
    return loss, float(pairs.max()) / len(best) - float(together[common])


def _of_none(kind: str, docs: Documents) -> dict[str, float]:
    near = max(docs.dense)
    return {
        f"{kind}_homes": 1.0,
        f"{kind}_shown_first": 1.0,
        f"{kind}_shown_three": 1.0,
        f"{kind}_same": 1.0,
        f"{kind}_near": near,
        f"{kind}_least": near,
    }
