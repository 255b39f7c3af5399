"""A handful of passages about a ferry line, and what one asks about them."""

from __future__ import annotations

from standard.domain.passage import Passage, RetrievedPassage, SearchResult
from standard.domain.text import UntrustedText

TEXTS = {
    "wind": ("Weather policy", "No ferry sails when the wind exceeds 40 knots. The master may stop earlier."),
    "refunds": ("Refunds", "Refunds for cancelled sailings are paid within 14 days. Nobody needs to ask for them."),
    "crew": ("Manning", "Two officers are on the bridge at night. Deck hands work shifts of eight hours."),
    "pets": ("Pets", "Dogs travel free of charge on the outer deck. Cats stay in their basket."),
    "history": ("History", "The line was founded by Maren Holt in 1921 with one steamer."),
}
IDF = {"wind": 3.1, "knot": 4.0, "ferri": 0.7, "sail": 0.9, "refund": 3.0, "dog": 4.1, "officer": 3.3, "bridg": 3.5}


def retrieved(name: str, rank: int = 0, *, verdict: str = "pass", text: str | None = None) -> RetrievedPassage:
    title, body = TEXTS[name]
    passage = Passage(
        passage_id=f"{name}#0",
        document_id=name,
        title=UntrustedText(title),
        uri=f"kb/{name}.md",
        text=UntrustedText(body if text is None else text),
        position=0,
        content_hash="",
        verdict=verdict,
    )
    return RetrievedPassage(
        passage, 1.0 - 0.15 * rank, dense_score=0.7 - 0.1 * rank, dense_rank=rank, lexical_score=9.0 - rank
    )


def found(*names: str) -> SearchResult:
    """A search result with these passages, best first."""
    passages = tuple(retrieved(name, rank) for rank, name in enumerate(names))
    return SearchResult(passages=passages, candidates=passages, term_idf=IDF, corpus_size=100)
