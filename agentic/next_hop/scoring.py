"""Which passage is the next hop?

Likeness to the whole question asks for near-copies of what is held already: sequels of the film, other years of the
same cup. The next hop is what the source leaves open.

A question's terms that a source does not hold are its residual need. A candidate is scored by how much of the question
source and candidate hold together, by what it adds to the best source and to all of them, by whether a source names
its title (a title that many candidates name as well, a country say, tells nothing), and by its ranks among links and
in the second look. A linear score; the weights are data (data/README.md says what they were fitted on). Candidates are
taken one after the other: what is open and the one before it holds counts no more for the next.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import astuple, dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from agentic.coverage import Term
    from standard.domain.passage import Passage, RetrievedPassage

RANK_OFFSET = 3
"""The k of a reciprocal rank: small, since only heads of lists matter for a handful of places."""
MAX_TERMS = 32
"""Terms of a question that are looked for, the heaviest."""
MAX_READ = 4_000
"""Code points of a passage that are read."""
TURNS = 8
"""Candidates that are taken one after the other; a step admits fewer new documents, most often five."""
_SHORTEST_NAME = 3
_NOT_WORD = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Weights:
    """One weight a feature, in the order of the columns of `features`.

    linked, near: reciprocal rank in that look. link: the link's own score (0-1). gain: share of the question (0-1) that
    the candidate adds to the source that holds most of it. new: share that no source holds and it does. named: share
    that a source which names its title holds together with it, divided by how many candidates name it.
    """

    linked: float
    near: float
    link: float
    gain: float
    new: float
    named: float

    def __post_init__(self) -> None:
        """Refuse what would rank by accident."""
        if not all(math.isfinite(value) for value in astuple(self)):
            raise ValueError("a weight of the next hop is not a finite number")


@dataclass(frozen=True, slots=True)
class Looks:
    """Passages of the three looks, each best first: the question's own ranking, links, the question with a source."""

    further: Sequence[RetrievedPassage]
    linked: Sequence[RetrievedPassage]
    near: Sequence[RetrievedPassage]


@lru_cache(maxsize=1)
def shipped_weights() -> Weights:
    """The weights that come with the package. Raises TypeError or ValueError where the file is damaged."""
    raw = json.loads((files("agentic.next_hop") / "data" / "weights.json").read_text("utf-8"))
    return Weights(**{name: float(value) for name, value in raw.items()})


@dataclass(frozen=True, slots=True)
class Reading:
    """What of a question's need stands where.

    `weight` (t,) are shares of the terms, together 1 (0 for no terms); `by_source` (s, t) and `by_candidate` (c, t)
    tell which text holds which term; the texts are plain words, see `_words`.
    """

    weight: NDArray[np.float64]
    by_source: NDArray[np.bool_]
    by_candidate: NDArray[np.bool_]
    source_texts: Sequence[str]
    candidate_texts: Sequence[str]

    @property
    def open(self) -> NDArray[np.float64]:
        """The weight (t,) of each term that no source holds, 0 for the others."""
        return np.where(self.by_source.any(axis=0), 0.0, self.weight)


def next_hops(
    terms: Sequence[Term], sources: Sequence[Passage], looks: Looks, held: set[str], weights: Weights
) -> list[RetrievedPassage]:
    """The passages of documents outside `held` (document ids), the likeliest next hop first; ties as found."""
    candidates = _candidates(looks, held)
    if not candidates:
        return []
    reading = read(terms, sources, candidates)
    scores = features(reading, looks, candidates) @ np.array(astuple(weights))
    adds = reading.by_candidate * (weights.new * reading.open)
    documents = [item.passage.document_id for item in candidates]
    return [candidates[row] for row in in_turn(scores, adds, documents)]


def in_turn(scores: NDArray[np.float64], adds: NDArray[np.float64], documents: Sequence[str]) -> list[int]:
    """Rows (n,) in the order in which they are taken, each once.

    `adds` (n, t) is what each term gave to a row's score; once a row is taken, its terms give nothing to those after
    it. Only the first passage of each document, and only the first TURNS, are taken so; the rest follow by score.
    """
    left, taken = list(range(len(scores))), list[int]()
    adds, scores = adds.copy(), scores.copy()
    while left and len(taken) < TURNS:
        row = left[int(np.argmax(scores[left]))]
        taken.append(row)
        left = [other for other in left if documents[other] != documents[row]]
        given = adds[row] > 0.0
        scores -= adds[:, given].sum(axis=1)
        adds[:, given] = 0.0
    rest = set(range(len(scores))).difference(taken)
    return taken + sorted(rest, key=lambda row: (-scores[row], row))


def read(terms: Sequence[Term], sources: Sequence[Passage], candidates: Sequence[RetrievedPassage]) -> Reading:
    """Look for the terms, the heaviest MAX_TERMS, in sources and candidates."""
    terms = sorted(terms, key=lambda term: -term.weight)[:MAX_TERMS]
    weight = np.array([term.weight for term in terms])
    source_texts = [_plain(passage) for passage in sources]
    texts = [_plain(item.passage) for item in candidates]
    return Reading(
        weight / (weight.sum() or 1.0), _holds(source_texts, terms), _holds(texts, terms), source_texts, texts
    )


def features(reading: Reading, looks: Looks, candidates: Sequence[RetrievedPassage]) -> NDArray[np.float64]:
    """The features of each candidate, (len(candidates), len(Weights)), every one in 0-1."""
    covered = reading.by_source @ reading.weight
    together = (reading.by_source[:, None, :] | reading.by_candidate) @ reading.weight  # (sources, candidates)
    columns = np.zeros((len(candidates), len(Weights.__dataclass_fields__)))
    for column, look in enumerate((looks.linked, looks.near)):
        ranks = {item.passage.passage_id: rank for rank, item in reversed(list(enumerate(look)))}
        for row, item in enumerate(candidates):
            if (rank := ranks.get(item.passage.passage_id)) is not None:
                columns[row, column] = 1.0 / (RANK_OFFSET + rank)
    links = {item.passage.passage_id: item.score for item in looks.linked}
    columns[:, 2] = [links.get(item.passage.passage_id, 0.0) for item in candidates]
    if len(covered):
        best = int(np.argmax(covered))
        columns[:, 3] = np.maximum(together[best] - covered[best], 0.0)
    columns[:, 4] = reading.by_candidate @ reading.open
    for row, item in enumerate(candidates):
        name = _name(item.passage.title.raw)
        naming = [source for source, text in enumerate(reading.source_texts) if name in text] if name else []
        if naming:
            others = sum(name in text for text in reading.candidate_texts) - 1
            columns[row, 5] = together[naming, row].max() / (1 + others)
    return columns


def _candidates(looks: Looks, held: set[str]) -> list[RetrievedPassage]:
    """Each passage once, as the first look that has it found it."""
    found: dict[str, RetrievedPassage] = {}
    for item in (*looks.further, *looks.linked, *looks.near):
        if item.passage.document_id not in held:
            found.setdefault(item.passage.passage_id, item)
    return list(found.values())


def _holds(texts: Sequence[str], terms: Sequence[Term]) -> NDArray[np.bool_]:
    """Which text holds a word that begins with the stem of which term, (len(texts), len(terms))."""
    stems = [f" {term.stem}" for term in terms]
    held = np.zeros((len(texts), len(terms)), dtype=bool)
    for row, text in enumerate(texts):
        held[row] = [stem in text for stem in stems]
    return held


def _plain(passage: Passage) -> str:
    """Title and text as lower-case words between single spaces, one before the first and after the last."""
    return _words(f"{passage.title.raw} {passage.text.raw[:MAX_READ]}")


def _name(title: str) -> str:
    """A title without a closing bracket, as words between spaces; empty where it is too short to be looked for."""
    title = title.rstrip()
    bare = title[: title.rfind("(")] if title.endswith(")") and title.rfind("(") > 0 else title
    name = _words(bare)
    return name if len(name) >= _SHORTEST_NAME + 2 else ""


def _words(text: str) -> str:
    return f" {_NOT_WORD.sub(' ', text.casefold()).strip()} "
