"""Prevents: context filled with what it already holds.

Searches of one run overlap: the same passage comes again under another query, or the same text under another id
(copies, mirrored pages). A passage enters a run once, by id and by content hash; searches fetch more than they need, so
that the wanted number of new ones still comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentic.state import Evidence, Held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.domain.passage import RetrievedPassage

NAME = "dedup"

MAX_FETCH = 100


def fetch_size(wanted: int, evidence: Evidence) -> int:
    """How many passages to fetch so that `wanted` new ones come even if every held one comes again (at most 100)."""
    return min(MAX_FETCH, wanted + len(evidence.held))


@dataclass(frozen=True, slots=True)
class Lot:
    """What one retrieval of a step found, best first. `step` is the retrieval's own number."""

    found: Sequence[RetrievedPassage]
    step: int
    branch: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of a lot: its new passages in order, and how many known ones stood before the last one taken."""

    new: tuple[Held, ...]
    duplicates: int


def admit(
    evidence: Evidence, lots: Sequence[Lot], *, wanted: int, full: bool
) -> tuple[Evidence, tuple[Admission, ...]]:
    """Take up to `wanted` new passages of each lot in, in turn, so that every lot's best comes before its second best.

    Returns the evidence after it and one admission a lot. Quarantined passages are never taken.
    """
    ids, hashes = set(evidence.ids), set(evidence.hashes)
    held = list(evidence.held)
    new: list[list[Held]] = [[] for _ in lots]
    duplicates = [0] * len(lots)
    rest = [iter(lot.found) for lot in lots]
    for _ in range(wanted):
        for index, lot in enumerate(lots):
            for item in rest[index]:
                passage = item.passage
                if passage.verdict == "quarantine":
                    continue
                if passage.passage_id in ids or passage.content_hash in hashes:
                    duplicates[index] += 1
                    continue
                ids.add(passage.passage_id)
                hashes.add(passage.content_hash)
                taken = Held(ref=len(held) + 1, found=item, step=lot.step, full=full, branch=lot.branch)
                held.append(taken)
                new[index].append(taken)
                break
    admissions = tuple(Admission(tuple(kept), count) for kept, count in zip(new, duplicates, strict=True))
    return Evidence(tuple(held)), admissions
