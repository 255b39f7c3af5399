"""How the scores of a first look fall off, and whether its legs agree."""

from __future__ import annotations

import math

from classifier.evidence.documents import Documents, at, mean, places_by
from classifier.evidence.look import SHOWN, Look

_LED = 10
"""Candidates whose weight is spread over documents."""
_SHARPNESS = 8.0


def shape(look: Look, docs: Documents) -> dict[str, float]:
    """Return the features of the scores."""
    number = docs.number
    lexical_scores: list[float] = look.lexical.tolist()
    fused: list[float] = look.scores.tolist()
    by_dense, by_lexical = places_by(docs.dense), places_by(lexical_scores)
    dense = [docs.dense[place] for place in by_dense]
    lexical = [lexical_scores[place] for place in by_lexical]
    dense_docs = {number[place] for place in by_dense[:SHOWN]}
    lexical_docs = {number[place] for place in by_lexical[:SHOWN]}
    most = max(2.2 * sum(look.term_idf.values()), 1e-3)  # k1 + 1: what BM25 nears as a term repeats
    shown = mean(dense[:SHOWN])
    other = next((place for place, document in enumerate(number) if document != 0), None)
    among = number[:SHOWN]
    pairs = len(among) * (len(among) - 1)
    return {
        "dense_best": dense[0],
        "dense_lead": dense[0] - at(dense, 1),
        "dense_fall_5": dense[0] - at(dense, 4),
        "dense_shown": shown,
        "dense_beyond": shown - mean(dense[SHOWN:10]),
        "lexical_best": lexical[0] / most,
        "lexical_lead": (lexical[0] - at(lexical, 1)) / most,
        "lexical_fall_5": (lexical[0] - at(lexical, 4)) / most,
        "fused_best": fused[0],
        "fused_lead": fused[0] - at(fused, 1),
        "fused_fall_5": fused[0] - at(fused, 4),
        "fused_cut": at(fused, 4) - at(fused, 5),
        "fused_tail": at(fused, 4) - at(fused, 9),
        "legs_share_passages": len(set(by_dense[:SHOWN]) & set(by_lexical[:SHOWN])) / SHOWN,
        "legs_share_documents": len(dense_docs & lexical_docs) / len(dense_docs | lexical_docs),
        "legs_agree": float(number[by_dense[0]] == number[by_lexical[0]]),
        "spread": _spread(fused[:_LED], number),
        "documents_shown": float(len(docs.shown)),
        "first_share": among.count(0) / len(among),
        "first_lead": fused[0] - (0.0 if other is None else fused[other]),
        "alike": (float(docs.gram[:SHOWN, :SHOWN].sum()) - len(among)) / pairs if pairs else 1.0,
    }


def _spread(fused: list[float], number: list[int]) -> float:
    """Return the entropy, in nats, of the weight of the best candidates over their documents."""
    weights: dict[int, float] = {}
    for score, document in zip(fused, number, strict=False):
        weights[document] = weights.get(document, 0.0) + math.exp(_SHARPNESS * (score - fused[0]))
    total = sum(weights.values())
    shares = [weight / total for weight in weights.values() if weight > 0.0]
    return -sum(share * math.log(share) for share in shares)
