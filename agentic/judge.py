"""Is the evidence enough? A judge answers after every step: known, missing, contradictions, and a score.

The evidence judge asks no model: it measures how much of the question stands in what was found.
The LLM judge is `agentic.controllers.decide`, where the same call also says what to do next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agentic.coverage import content_terms, covered, stems
from agentic.state import BranchResult, Fact, Judgement
from standard.domain.answer import Usage

if TYPE_CHECKING:
    from agentic.state import RunState


@dataclass(frozen=True, slots=True)
class Judged:
    """A judgement, what it cost, and which source numbers it calls relevant; None where it does not say.

    `results` are the ends of a plan's branches that it brought.
    """

    judgement: Judgement
    relevant: frozenset[int] | None = None
    usage: Usage = Usage()
    results: tuple[BranchResult, ...] = ()


class Judge(Protocol):
    """Judges the evidence of a run."""

    async def judge(self, state: RunState) -> Judged:
        """Judge the evidence as it stands. May raise LlmUnavailable or UnreadableOutput."""
        ...


class EvidenceJudge:
    """Judges by coverage of the question's words: free, deterministic, blind to meaning."""

    async def judge(self, state: RunState) -> Judged:
        """Score = the question's weighted words found in the best passage and in all of them, half each."""
        return Judged(judge_coverage(state))


def judge_coverage(state: RunState) -> Judgement:
    """The judgement of the evidence by words alone."""
    question = " ".join([state.question.raw, *(reply.answer.raw for reply in state.replies)])
    terms = content_terms(question, dict(state.term_idf))
    best, best_ref = 0.0, 0
    everything: set[str] = set()
    for held in state.evidence.held:
        present = stems(f"{held.passage.title.raw} {held.passage.section_heading} {held.text.raw}")
        everything |= present
        share = covered(terms, present)
        if share > best:
            best, best_ref = share, held.ref
    together = covered(terms, frozenset(everything))
    score = (best + together) / 2 if state.evidence.held else 0.0
    if not terms:
        score /= 2  # a question without a word of its own cannot be judged by words
    missing = tuple(term.word for term in terms if term.stem not in everything)
    known = (Fact("the source that holds most of the question's words", (best_ref,)),) if best_ref else ()
    return Judgement(
        step=state.steps,
        score=score,
        sufficient=score >= state.settings.sufficient_score and not missing,
        known=known,
        missing=missing[:8],
        by="evidence",
    )
