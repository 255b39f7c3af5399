"""Folds that keep what belongs together in one place: a domain, a family of data sets, a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def group_folds(
    groups: Sequence[str], count: int, *, seed: int = 0
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return up to `count` pairs (training rows, held-out rows), each group held out once, folds of similar size."""
    names, inverse = np.unique(np.asarray(groups), return_inverse=True)
    rng = np.random.default_rng(seed)
    sizes = np.bincount(inverse)
    shuffled = rng.permutation(len(names))
    order = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    folds = min(count, len(names))
    load = np.zeros(folds, dtype=np.int64)
    fold_of = np.zeros(len(names), dtype=np.int64)
    for name in order:
        fold = int(load.argmin())
        fold_of[name] = fold
        load[fold] += sizes[name]
    rows = np.arange(len(inverse))
    held = fold_of[inverse]
    return [(rows[held != fold], rows[held == fold]) for fold in range(folds)]
