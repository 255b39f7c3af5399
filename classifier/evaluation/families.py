"""Public question sets by family: built from each other or of one style, so held out together or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from classifier.errors import BadLabels

if TYPE_CHECKING:
    from pathlib import Path

FAMILIES: tuple[tuple[str, ...], ...] = (
    ("webquestions", "grailqa", "simplequestions"),
    ("hotpotqa", "musique", "2wikimultihopqa", "bamboogle", "fanoutqa", "frames", "squad2", "nq_open"),
    ("tatqa",),
    ("banking77", "clinc150", "nlu_stackexchange"),
    ("enterpriserag_bench", "mtrag_un"),
    ("strategyqa",),
    ("expertqa", "deep_research_bench"),
)
MIXED_ROWS = 200
"""Sources with both labels and at least this many rows count for the mean."""


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Questions of one source; `complex` is parallel to `questions`."""

    source: str
    questions: tuple[str, ...]
    complex: tuple[bool, ...]

    @property
    def mixed(self) -> bool:
        """Whether it has both labels, and rows enough for a figure of its own."""
        return len(self.questions) >= MIXED_ROWS and any(self.complex) and not all(self.complex)


def family_of(source: str) -> int:
    """Return the number of the source's family; an unknown source is a family of its own."""
    for number, family in enumerate(FAMILIES):
        if source in family:
            return number
    return len(FAMILIES) + sum(source.encode())


def read_sources(folder: Path, *, most: int, seed: int = 0) -> list[SourceRows]:
    """Read every `*.jsonl` of {question, label}, at most `most` rows a label and source, drawn with the seed.

    Raises BadLabels for a folder without such files or a malformed line.
    """
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        rows: list[tuple[str, bool]] = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                rows.append((str(row["question"]), {"simple": False, "complex": True}[row["label"]]))
            except (ValueError, KeyError, TypeError) as error:
                raise BadLabels(f"{path}, line {number}: no labelled question ({error!r})") from None
        rng = np.random.default_rng(seed)
        kept: list[tuple[str, bool]] = []
        for label in (False, True):
            of_label = [row for row in rows if row[1] is label]
            order = rng.permutation(len(of_label))[:most]
            kept += [of_label[place] for place in np.sort(order)]
        if kept:
            found.append(SourceRows(path.stem, tuple(row[0] for row in kept), tuple(row[1] for row in kept)))
    if not found:
        raise BadLabels(f"{folder} holds no *.jsonl with labelled questions")
    return found
