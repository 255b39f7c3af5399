"""Why an answer is not right: one reason a question, the first that applies.

right          it says a gold answer; where none is known, every supporting document was found and it answers
budget         a supporting document is missing, and steps, tokens, time or money ended the search
guard          a supporting document is missing, and a guard refused a search or ended it
missing_hop    a supporting document is missing, and the search ended by itself
wrong_chunks   every supporting document was found, but no passage that holds a gold answer
answer         what was found holds the answer, or a yes or no; it was not said
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.evaluation.answers.record import Record

RIGHT, WRONG_CHUNKS, MISSING_HOP, BUDGET, GUARD, ANSWER = (
    "right",
    "wrong_chunks",
    "missing_hop",
    "budget",
    "guard",
    "answer",
)
REASONS = (RIGHT, WRONG_CHUNKS, MISSING_HOP, BUDGET, GUARD, ANSWER)
_BUDGETS = frozenset({"step_budget", "token_budget", "time_budget", "cost_budget"})


def reason_of(record: Record) -> str:
    """The reason of one answerable question."""
    complete = support_met(record.acquired[: record.shown], record.support) == 1.0
    if record.says_answer or (record.says_answer is None and complete and not record.abstained):
        return RIGHT
    if complete:
        return WRONG_CHUNKS if record.holds_answer is False else ANSWER
    if record.stop_reason in _BUDGETS:
        return BUDGET
    return GUARD if record.guards else MISSING_HOP


def sorted_failures(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The answerable questions by reason, every reason present."""
    found: dict[str, list[Record]] = {reason: [] for reason in REASONS}
    for record in records:
        found[reason_of(record)].append(record)
    return found


def counted(records: Sequence[Record]) -> dict[str, int]:
    """How many questions each reason has; they add up to all."""
    counts = Counter(map(reason_of, records))
    return {reason: counts[reason] for reason in REASONS}


def support_met(documents: Iterable[str], support: Sequence[Sequence[str]]) -> float:
    """The share (0-1) of supporting documents that stand, themselves or a stand-in, among the documents."""
    there = set(documents)
    return sum(not there.isdisjoint(choices) for choices in support) / len(support)
