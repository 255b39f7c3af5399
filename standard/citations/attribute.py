"""Citations for an answer whose model named no source: only where a passage says nearly the same.

Small models forget the tags. A sentence of the answer is given the passage sentence that it shares most words with, if
that is at least half of what both say (Dice's measure); what is not in the passages stays without a citation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standard.citations.quote import QuotedPassage
from standard.domain.answer import Citation
from standard.sentences import sentence_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.sandbox.render import TaggedPassage

LEAST_SHARED = 0.5


def attribute(text: str, sources: Sequence[TaggedPassage]) -> list[Citation]:
    """Citations of the sentences of `text`, in order; at most one a sentence."""
    passages = [QuotedPassage(item.passage) for item in sources]
    citations = []
    for start, end in sentence_spans(text):
        claim = text[start:end]
        matches = [(passage.best_match(claim), passage) for passage in passages]
        if not matches:
            break
        (shared, span), best = max(matches, key=lambda match: match[0][0])
        if shared >= LEAST_SHARED:
            citations.append(best.cite(span, (start, end)))
    return citations
