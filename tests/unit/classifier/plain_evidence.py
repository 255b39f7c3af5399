"""The evidence features written straight down, a definition a line: what the served ones are held against.

classifier.evidence computes the same numbers with a fifth of the work.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from classifier.evidence.look import SHOWN, Look
from classifier.evidence.names import NAMES
from classifier.evidence.pieces import content_words, pieces_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Numbers = dict[str, float]

_MOST = 8.0
_RIDGE = 1e-3
"""Keeps passages that say the same from spanning a space."""


def plain_features(look: Look) -> NDArray[np.float32]:
    """Return the features (len(NAMES),) of a checked look; of one without candidates, what an empty corpus shows."""
    values: Numbers = {}
    if len(look.documents):
        docs = _Documents(look)
        values |= _shape(look, docs)
        values |= _coverage(look, docs)
        values |= _parts("piece", look, docs, look.pieces)
        values |= _parts("rest", look, docs, _unit(look.vector - 0.5 * look.pieces))
        values |= _parts("word", look, docs, look.words)
        values |= _pointing(look, docs)
    else:
        values |= {"unseen": 1.0, "missing_most": 1.0}
    features = np.array([values.get(name, 0.0) for name in NAMES], dtype=np.float32)
    return np.clip(np.nan_to_num(features, nan=0.0, posinf=_MOST, neginf=-_MOST), -_MOST, _MOST)


class _Documents:
    """The candidates by document, numbered in order of first appearance; `mask` (documents, n) marks their passages."""

    __slots__ = ("count", "dense", "mask", "number", "shown", "texts", "titles")

    def __init__(self, look: Look) -> None:
        order = {name: place for place, name in enumerate(dict.fromkeys(look.documents))}
        self.number = np.array([order[name] for name in look.documents])
        self.count = len(order)
        self.mask = self.number[None, :] == np.arange(self.count)[:, None]
        self.shown = frozenset(self.number[:SHOWN].tolist())
        self.dense = look.vectors @ look.vector
        self.titles = [title.lower() for title in look.titles]
        self.texts = [f"{title}\n{text.lower()}" for title, text in zip(self.titles, look.texts, strict=True)]

    def best(self, affinity: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the best of each row's affinities (rows, n) within each document (rows, documents)."""
        found: NDArray[np.float32] = np.where(self.mask[None], affinity[:, None, :], np.float32(-2.0)).max(axis=2)
        return found


def _shape(look: Look, docs: _Documents) -> Numbers:
    dense = np.sort(docs.dense)[::-1]
    lexical = np.sort(look.lexical)[::-1]
    most = max(2.2 * sum(look.term_idf.values()), 1e-3)  # k1 + 1: what BM25 nears as a term repeats
    fused = look.scores
    by_dense, by_lexical = (
        np.argsort(-docs.dense, kind="stable")[:SHOWN],
        np.argsort(-look.lexical, kind="stable")[:SHOWN],
    )
    dense_docs, lexical_docs = set(docs.number[by_dense].tolist()), set(docs.number[by_lexical].tolist())
    weight = np.exp(8.0 * (fused[:10] - fused[0]))
    share = np.bincount(docs.number[:10], weights=weight)
    share = share[share > 0.0] / share.sum()
    others = np.flatnonzero(docs.number != 0)
    shown = look.vectors[:SHOWN]
    pairs = len(shown) * (len(shown) - 1)
    return {
        "dense_best": float(dense[0]),
        "dense_lead": float(dense[0] - _at(dense, 1)),
        "dense_fall_5": float(dense[0] - _at(dense, 4)),
        "dense_shown": float(dense[:SHOWN].mean()),
        "dense_beyond": float(dense[:SHOWN].mean() - (dense[SHOWN:10].mean() if len(dense) > SHOWN else 0.0)),
        "lexical_best": float(lexical[0]) / most,
        "lexical_lead": float(lexical[0] - _at(lexical, 1)) / most,
        "lexical_fall_5": float(lexical[0] - _at(lexical, 4)) / most,
        "fused_best": float(fused[0]),
        "fused_lead": float(fused[0] - _at(fused, 1)),
        "fused_fall_5": float(fused[0] - _at(fused, 4)),
        "fused_cut": float(_at(fused, 4) - _at(fused, 5)),
        "fused_tail": float(_at(fused, 4) - _at(fused, 9)),
        "legs_share_passages": len(set(by_dense.tolist()) & set(by_lexical.tolist())) / SHOWN,
        "legs_share_documents": len(dense_docs & lexical_docs) / len(dense_docs | lexical_docs),
        "legs_agree": float(docs.number[by_dense[0]] == docs.number[by_lexical[0]]),
        "spread": float(-(share * np.log(share)).sum()),
        "documents_shown": float(len(docs.shown)),
        "first_share": float((docs.number[:SHOWN] == 0).mean()),
        "first_lead": float(fused[0] - (fused[others[0]] if len(others) else 0.0)),
        "alike": float((np.square(shown.sum(axis=0)).sum() - len(shown)) / pairs) if pairs else 1.0,
    }


def _coverage(look: Look, docs: _Documents) -> Numbers:
    if not look.term_idf:
        return {"missing_most": 1.0, "unseen": 1.0}
    idf = np.array(list(look.term_idf.values()))
    weight = idf / max(float(idf.sum()), 1e-9)
    stems = [_stem(term) for term in look.term_idf]
    held: NDArray[np.bool_] = np.array([[_holds(text, stem) for stem in stems] for text in docs.texts], dtype=bool)
    by_document: NDArray[np.bool_] = np.stack([held[rows].any(axis=0) for rows in docs.mask])
    passages, documents = held @ weight, by_document @ weight
    shown: NDArray[np.bool_] = np.logical_or.reduce(held[:SHOWN], axis=0)
    everything: NDArray[np.bool_] = np.logical_or.reduce(held, axis=0)
    best = int(documents.argmax())
    ranked = np.sort(documents)[::-1]
    in_titles = np.array([[_holds(title, stem) for stem in stems] for title in docs.titles], dtype=bool)
    rarest = np.argsort(-idf, kind="stable")[:3]
    never_seen = idf >= math.log(1.0 + (look.corpus_size + 0.5) / 0.5) - 1e-4
    scale = math.log(look.corpus_size + 2.0)
    losses = _term_losses(look, stems, weight, by_document)
    return {
        "covered_first": float(passages[0]),
        "covered_passage": float(passages.max()),
        "covered_shown": float(shown @ weight),
        "covered_all": float(everything @ weight),
        "covered_document": float(documents[best]),
        "covered_first_document": float(documents[0]),
        "gain_shown": float(shown @ weight - passages.max()),
        "gain_documents": float(everything @ weight - documents[best]),
        "gain_pair": float((np.logical_or(by_document, by_document[best]) @ weight).max() - documents[best]),
        "document_lead": float(ranked[0] - _at(ranked, 1)),
        "covered_beyond": float((everything & ~shown) @ weight),
        "missing_most": float(np.where(everything, 0.0, weight).max()),
        "rare_shown": float(shown[rarest].mean()),
        "rare_together": float(held[:, rarest].mean(axis=1).max()),
        "unseen": float(weight[never_seen].sum()),
        "terms": math.log1p(len(stems)),
        "rarest": float(idf.max()) / scale,
        "rarity": float(idf.mean()) / scale,
        "title_covered": float((in_titles[:SHOWN] @ weight).max()),
        "titles_hit": len(set(docs.number[in_titles.any(axis=1)].tolist())) / SHOWN,
        "parts_loss": float(np.mean(losses)) if losses else 0.0,
        "parts_loss_most": max(losses, default=0.0),
    }


def _term_losses(
    look: Look, stems: list[str], weight: NDArray[np.float64], by_document: NDArray[np.bool_]
) -> list[float]:
    """Return, a part at a time, how much less of its terms the best common document covers than the part's own best."""
    rows = []
    for piece in pieces_of(look.question):
        lowered = piece.lower()
        inside = np.array([_holds(lowered, stem) for stem in stems], dtype=bool)
        part = weight * inside
        if part.sum() > 1e-6:
            rows.append(by_document @ (part / part.sum()))
    if not rows:
        return []
    covered = np.array(rows)
    common = int(covered.sum(axis=0).argmax())
    losses: list[float] = (covered.max(axis=1) - covered[:, common]).tolist()
    return losses


def _parts(kind: str, look: Look, docs: _Documents, parts: NDArray[np.float32]) -> Numbers:
    if not len(parts):
        near = float(docs.dense.max())
        alone = {"homes": 1.0, "shown_first": 1.0, "shown_three": 1.0, "same": 1.0, "near": near, "least": near}
        return {f"{kind}_{name}": value for name, value in alone.items()}
    affinity = parts @ look.vectors.T
    best = docs.best(affinity)
    nearest = best.max(axis=1)
    together = best.mean(axis=0)
    common = int(together.argmax())
    loss = nearest - best[:, common]
    leading = best[:, np.argsort(-together, kind="stable")[:SHOWN]]
    pairs = np.maximum(leading[:, :, None], leading[:, None, :]).mean(axis=0)
    three = docs.number[np.argsort(-affinity, axis=1, kind="stable")[:, :3]]
    shown = np.isin(three, list(docs.shown))
    beyond = affinity.max(axis=1) - affinity[:, :SHOWN].max(axis=1)
    values = {
        "homes": float(len(set(best.argmax(axis=1).tolist()))),
        "loss": float(loss.mean()),
        "loss_most": float(loss.max()),
        "pair": float(pairs.max() - together[common]),
        "near": float(nearest.mean()),
        "least": float(nearest.min()),
        "shown_first": float(shown[:, 0].mean()),
        "shown_three": float(shown.mean()),
        "same": float((three[:, 0] == 0).mean()),
        "beyond": float(beyond.mean()),
        "beyond_most": float(beyond.max()),
    }
    return {f"{kind}_{name}": value for name, value in values.items()}


def _pointing(look: Look, docs: _Documents) -> Numbers:
    question, vectors = look.vector, look.vectors
    first = np.flatnonzero(docs.number == 0)
    others = np.flatnonzero(docs.number != 0)
    nearest = first[np.argsort(-docs.dense[first], kind="stable")]
    left = _left_over(question, vectors[nearest[:1]])
    elsewhere = _left_over_pairs(question, vectors[nearest[0]], vectors[others[:8]])
    within = _left_over_pairs(question, vectors[nearest[0]], vectors[nearest[1:6]])
    rest = _unit((question - float(question @ vectors[0]) * vectors[0])[None])[0]
    second = vectors @ rest
    named = _named_titles(look.question.lower(), docs, first, others)
    asked = content_words(docs.titles[0])
    lowered = look.question.lower()
    return {
        "parts": math.log1p(len(look.pieces)),
        "left_over": _left_over(question, vectors[nearest[:2]]),
        "left_over_shown": _left_over(question, vectors[:SHOWN]),
        "explained_elsewhere": left - min(elsewhere, default=left),
        "explained_within": left - min(within, default=left),
        "second_same": float(docs.number[int(second.argmax())] == 0),
        "second_near": float(second.max()),
        "second_beyond": float(second.max() - second[:SHOWN].max()),
        "names_title": max(named, default=0.0),
        "titles_named": float(min(sum(share == 1.0 for share in named), 5)),
        "title_asked": sum(word in lowered for word in asked) / len(asked) if asked else 0.0,
    }


def _named_titles(question: str, docs: _Documents, first: NDArray[np.int64], others: NDArray[np.int64]) -> list[float]:
    """Return for each other document the share of its title, beyond the question's words, that the first one names."""
    text = "\n".join(docs.texts[place] for place in first[:3])
    shares, seen = [], set()
    for place in others:
        number = int(docs.number[place])
        if number in seen:
            continue
        seen.add(number)
        words = [word for word in content_words(docs.titles[place]) if len(word) > 2 and word not in question]
        if words:
            shares.append(sum(_holds(text, word) for word in words) / len(words))
    return shares


def _left_over(question: NDArray[np.float32], passages: NDArray[np.float32]) -> float:
    """Return the length of what the span of the passages does not explain of the question's unit vector."""
    gram = passages @ passages.T + _RIDGE * np.eye(len(passages), dtype=np.float32)
    seen = passages @ question
    explained = float(seen @ np.linalg.solve(gram, seen))
    return math.sqrt(max(0.0, 1.0 - min(explained, 1.0)))


def _left_over_pairs(
    question: NDArray[np.float32], first: NDArray[np.float32], others: NDArray[np.float32]
) -> list[float]:
    """Return `_left_over` for the first passage with each other, by the inverse of a matrix of two rows."""
    own, theirs = float(first @ first) + _RIDGE, np.square(others).sum(axis=1) + _RIDGE
    shared, seen, seen_theirs = others @ first, float(first @ question), others @ question
    explained = (theirs * seen**2 - 2.0 * shared * seen * seen_theirs + own * seen_theirs**2) / (
        own * theirs - shared**2
    )
    left: list[float] = np.sqrt(np.clip(1.0 - explained, 0.0, None)).tolist()
    return left


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    unit: NDArray[np.float32] = rows / np.maximum(lengths, np.float32(1e-6))
    return unit


def _at(values: NDArray[np.float32] | NDArray[np.float64], place: int) -> float:
    return float(values[place]) if place < len(values) else 0.0


def _stem(term: str) -> str:
    """Return what all forms of a Snowball stem begin with: its final i stands for y or ie."""
    return term[:-1] if len(term) > 4 and term.endswith("i") else term


def _holds(text: str, stem: str) -> bool:
    """Say whether a word of the lower-case text begins with the stem."""
    place = text.find(stem)
    while place > 0 and text[place - 1].isalnum():
        place = text.find(stem, place + 1)
    return place >= 0
