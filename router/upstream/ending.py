"""How an upstream says that its answer ended: an outcome and notices of its own, which ours carries over.

Prevents: an upstream that found nothing, or warned of what it found, counted and shown as if it had answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from router.http.contract.paths import MISSING, walk
from standard.domain.answer import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.http.contract.paths import Path

MAX_NOTICES: Final = 16
MAX_NOTICE_CHARS: Final = 1_000
_OUTCOMES: Final = {name: outcome for outcome in Outcome for name in (outcome.value, f"outcome_{outcome.value}")}


@dataclass(frozen=True, slots=True)
class Ending:
    """What an upstream told of its answer, after all of its words; None and () where it told nothing."""

    outcome: Outcome | None = None
    notices: tuple[str, ...] = ()


def outcome_at(paths: Iterable[Path], value: object) -> Outcome | None:
    """The outcome at the first path that leads to one of ours, in any case, with or without `OUTCOME_`; else None."""
    for path in paths:
        found = walk(path.steps, value)
        if isinstance(found, str) and (outcome := _OUTCOMES.get(found.lower())):
            return outcome
    return None


def notices_at(paths: Iterable[Path], value: object) -> tuple[str, ...]:
    """The texts at the first path that leads to one or a list of them: MAX_NOTICES at most, cut to MAX_NOTICE_CHARS."""
    for path in paths:
        found = walk(path.steps, value)
        items = [] if found is MISSING else found if isinstance(found, list) else [found]
        texts = [item.strip()[:MAX_NOTICE_CHARS] for item in items if isinstance(item, str) and item.strip()]
        if texts:
            return tuple(texts[:MAX_NOTICES])
    return ()
