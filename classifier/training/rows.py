"""The project's own labelled questions, as they lie in classifier/data/questions/."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from classifier.errors import BadLabels

if TYPE_CHECKING:
    from collections.abc import Iterable

QUESTIONS = Path(__file__).parents[1] / "data" / "questions"
SOURCES = ("enterprise_seed.jsonl", "batch_a.jsonl", "batch_b.jsonl")
"""Files of labelled questions; others in the folder are sets apart (paraphrases, ambiguous ones, follow-ups)."""

OTHER_LANGUAGES = frozenset(
    "spanish german french portuguese italian dutch polish turkish japanese chinese hindi arabic".split()  # noqa: SIM905
)
"""Voices that are languages other than English."""


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question with its label (complex = needs several looks) and the group that must not be split over folds."""

    id: str
    question: str
    complex: bool
    domain: str
    voice: str
    source: str

    @property
    def english(self) -> bool:
        """Whether it is written in English."""
        return self.voice not in OTHER_LANGUAGES


def own_questions(folder: Path = QUESTIONS, sources: Iterable[str] = SOURCES) -> list[LabelledQuestion]:
    """Read the labelled questions. Raises BadLabels for a missing file or a row that lacks something."""
    rows: list[LabelledQuestion] = []
    for source in sources:
        rows += read_questions(folder / source)
    return rows


def read_questions(path: Path) -> list[LabelledQuestion]:
    """Read one file of {id, question, label, domain, voice}. Raises BadLabels."""
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadLabels(f"{path} cannot be read ({error.strerror})") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            label = {"simple": False, "complex": True}[row["label"]]
            rows.append(
                LabelledQuestion(
                    str(row["id"]),
                    str(row["question"]),
                    label,
                    str(row.get("domain", "")),
                    str(row.get("voice", "")),
                    path.name,
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BadLabels(f"{path}, line {number}: no labelled question ({error!r})") from None
    return rows
