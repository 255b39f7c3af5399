"""The candidates of a first look by document, and what several features are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from classifier.evidence.look import SHOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from classifier.evidence.look import Look


class Documents:
    """The candidates of a look with at least one, their documents numbered in order of first appearance.

    `number` is each candidate's document, `shown` the documents among the passages shown. `dense` are the candidates'
    products with the question, `gram` (n, n) those with each other. `texts` hold title and text in lower case.
    """

    __slots__ = ("_order", "_starts", "dense", "gram", "number", "shown", "texts", "titles")

    def __init__(self, look: Look) -> None:
        order = {name: place for place, name in enumerate(dict.fromkeys(look.documents))}
        self.number = [order[name] for name in look.documents]
        self.shown = frozenset(self.number[:SHOWN])
        by_document = sorted(range(len(self.number)), key=self.number.__getitem__)
        self._order = np.array(by_document)
        ordered = [self.number[place] for place in by_document]
        self._starts = np.array([ordered.index(place) for place in range(len(order))])
        self.dense: list[float] = (look.vectors @ look.vector).tolist()
        self.gram: NDArray[np.float32] = look.vectors @ look.vectors.T
        self.titles = [title.lower() for title in look.titles]
        self.texts = [f"{title}\n{text.lower()}" for title, text in zip(self.titles, look.texts, strict=True)]

    def best(self, affinity: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the best of each row's affinities (rows, n) within each document (rows, documents)."""
        found: NDArray[np.float32] = np.maximum.reduceat(affinity[:, self._order], self._starts, axis=1)
        return found

    def union(self, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return what each document's passages (n, terms) hold together (documents, terms)."""
        together: NDArray[np.bool_] = np.logical_or.reduceat(held[self._order], self._starts, axis=0)
        return together


def places_by(values: list[float]) -> list[int]:
    """Return the places of the values, highest first; equal ones in their order."""
    return sorted(range(len(values)), key=lambda place: -values[place])


def at(values: list[float], place: int) -> float:
    """Return the value at a place, 0 beyond the end."""
    return values[place] if place < len(values) else 0.0


def mean(values: list[float]) -> float:
    """Return the mean, 0 of none."""
    return sum(values) / len(values) if values else 0.0
