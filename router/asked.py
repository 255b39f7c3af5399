"""Which words of a question are embedded, searched and classified."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classifier.followup import standalone
from classifier.neutral import neutral

if TYPE_CHECKING:
    from standard.domain.question import Question


def asked_text(question: Question) -> str:
    """Return the text that is searched and classified: a follow-up together with what it leans on.

    That is what the gateway settled (router.followup); where nobody did, a rule says it.
    """
    if question.standalone is not None:
        return question.standalone.raw
    return standalone(question.text.raw, [turn.text.raw for turn in question.history if turn.role == "user"])


def embedded_text(question: Question) -> str:
    """Return `asked_text` in its neutral form, so that a final "?" moves neither the search nor the route."""
    return neutral(asked_text(question))
