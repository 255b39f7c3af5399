"""The sentence of a passage that supports a claim best: an exact substring of what may be shown, with its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from standard.domain.answer import Citation
from standard.screening import quotable
from standard.sentences import sentence_spans
from standard.words import content_stems, is_number

if TYPE_CHECKING:
    from standard.domain.passage import Passage


@dataclass(slots=True)
class QuotedPassage:
    """A passage and its sentences; they are found when first needed, once.

    `text` is what of the passage may be quoted, every place where it was: what the scan neutralised is blank, and no
    sentence reaches over it, so that each is an exact substring of the passage. It is empty where that cannot be had
    without moving text; then nothing is quoted.
    """

    passage: Passage
    text: str = field(init=False)
    _sentences: list[tuple[tuple[int, int], frozenset[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find what may be quoted."""
        self.text = quotable(self.passage) or ""

    def best_match(self, claim: str) -> tuple[float, tuple[int, int]]:
        """How much the passage's most similar sentence shares with the claim (0-1), and that sentence's span.

        Terms weigh 1, those with digits 2; the measure is Dice's, so that a long sentence does not win by length alone.
        Where nothing is shared (an answer in another language, say) it is the first sentence; an empty passage gives
        the span (0, 0).
        """
        if not self._sentences:
            text = self.text
            self._sentences = [(span, frozenset(content_stems(text[slice(*span)]))) for span in sentence_spans(text)]
        if not self._sentences:
            return 0.0, (0, 0)
        wanted = frozenset(content_stems(claim))
        total = _weight(wanted)
        best = max(self._sentences, key=lambda item: _dice(wanted, total, item[1]))
        return _dice(wanted, total, best[1]), best[0]

    def cite(self, span: tuple[int, int], answer: tuple[int, int], *, moved: bool = False) -> Citation:
        """The citation of this span of the passage for that span of an answer; `moved` as in Citation."""
        passage = self.passage
        return Citation(
            passage_id=passage.passage_id,
            document_id=passage.document_id,
            title=passage.title.raw,
            uri=passage.uri,
            quote=self.text[slice(*span)],
            answer_start=answer[0],
            answer_end=answer[1],
            passage_start=span[0],
            passage_end=span[1],
            moved=moved,
        )


def _dice(wanted: frozenset[str], total: float, present: frozenset[str]) -> float:
    shared = wanted & present
    return 2 * _weight(shared) / (total + _weight(present)) if shared else 0.0


def _weight(terms: frozenset[str]) -> float:
    return float(sum(2 if is_number(term) else 1 for term in terms))
