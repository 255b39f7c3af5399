"""How the question's terms are covered: by one passage, by one document, by the passages shown, by all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from classifier.evidence.documents import Documents, at, mean
from classifier.evidence.look import SHOWN, Look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def coverage(look: Look, docs: Documents) -> dict[str, float]:
    """Return the features of the terms' coverage, each term weighted by its share of all idf."""
    if not look.term_idf:
        return {"missing_most": 1.0, "unseen": 1.0}
    idfs = list(look.term_idf.values())
    total = max(sum(idfs), 1e-9)
    weights = [idf / total for idf in idfs]
    weight = np.array(weights)
    stems = [_stem(term) for term in look.term_idf]
    held = _held(docs.texts, stems)
    by_document = docs.union(held)
    shown: NDArray[np.bool_] = np.logical_or.reduce(held[:SHOWN], axis=0)
    everything: NDArray[np.bool_] = np.logical_or.reduce(by_document, axis=0)
    passages: list[float] = (held @ weight).tolist()
    covered = by_document @ weight
    documents: list[float] = covered.tolist()
    best = int(covered.argmax())
    ranked = sorted(documents, reverse=True)
    covered_shown, covered_all = float(shown @ weight), float(everything @ weight)
    with_best: NDArray[np.float64] = np.logical_or(by_document, by_document[best]) @ weight
    # The passages of a document have one title, so that there are fewer of them than texts.
    of_title = {title: _row(title, stems) for title in dict.fromkeys(docs.titles)}
    in_titles = [of_title[title] for title in docs.titles]
    rarest = sorted(range(len(idfs)), key=lambda place: -idfs[place])[:3]
    never_seen = math.log(1.0 + (look.corpus_size + 0.5) / 0.5) - 1e-4
    scale = math.log(look.corpus_size + 2.0)
    losses = _term_losses(look.piece_texts, stems, weights, by_document)
    rare: list[list[bool]] = held[:, rarest].tolist()
    return {
        "covered_first": passages[0],
        "covered_passage": max(passages),
        "covered_shown": covered_shown,
        "covered_all": covered_all,
        "covered_document": documents[best],
        "covered_first_document": documents[0],
        "gain_shown": covered_shown - max(passages),
        "gain_documents": covered_all - documents[best],
        "gain_pair": float(with_best.max()) - documents[best],
        "document_lead": ranked[0] - at(ranked, 1),
        "covered_beyond": covered_all - covered_shown,
        "missing_most": max(
            (part for part, found in zip(weights, everything.tolist(), strict=True) if not found), default=0.0
        ),
        "rare_shown": sum(any(row[place] for row in rare[:SHOWN]) for place in range(len(rarest))) / len(rarest),
        "rare_together": max(sum(row) for row in rare) / len(rarest),
        "unseen": sum(part for part, idf in zip(weights, idfs, strict=True) if idf >= never_seen),
        "terms": math.log1p(len(stems)),
        "rarest": max(idfs) / scale,
        "rarity": mean(idfs) / scale,
        "title_covered": max(
            sum(part for part, found in zip(weights, row, strict=True) if found) for row in in_titles[:SHOWN]
        ),
        "titles_hit": len({docs.number[place] for place, row in enumerate(in_titles) if any(row)}) / SHOWN,
        "parts_loss": mean(losses),
        "parts_loss_most": max(losses, default=0.0),
    }


def holds(text: str, stem: str) -> bool:
    """Say whether a word of the lower-case text begins with the stem."""
    place = text.find(stem)
    while place > 0 and text[place - 1].isalnum():
        place = text.find(stem, place + 1)
    return place >= 0


def _held(texts: list[str], stems: list[str]) -> NDArray[np.bool_]:
    """Return which text holds a word beginning with which stem (texts, stems)."""
    return np.array([_row(text, stems) for text in texts])


def _row(text: str, stems: list[str]) -> list[bool]:
    """Return which stems a word of the lower-case text begins with; most are not there, which `in` tells sooner."""
    return [stem in text and holds(text, stem) for stem in stems]


def _term_losses(
    pieces: Sequence[str], stems: list[str], weights: list[float], by_document: NDArray[np.bool_]
) -> list[float]:
    """Return, a part at a time, how much less of its terms the best common document covers than the part's own best."""
    rows = []
    for piece in pieces:
        lowered = piece.lower()
        inside = [
            part if stem in lowered and holds(lowered, stem) else 0.0 for part, stem in zip(weights, stems, strict=True)
        ]
        total = sum(inside)
        if total > 1e-6:
            rows.append([part / total for part in inside])
    if not rows:
        return []
    covered: NDArray[np.float64] = np.array(rows) @ by_document.T
    common = int(np.add.reduce(covered, axis=0).argmax())
    losses: list[float] = (np.maximum.reduce(covered, axis=1) - covered[:, common]).tolist()
    return losses


def _stem(term: str) -> str:
    """Return what all forms of a Snowball stem begin with: its final i stands for y or ie."""
    return term[:-1] if len(term) > 4 and term.endswith("i") else term
