"""Sets of questions with known supporting documents, as folders.

A folder holds `corpus*.jsonl` ({id, title, text}) and `questions.jsonl` ({id, question, supporting_ids, …}). Optional
keys of a question: `alt_supporting_ids` {id: [stand-ins]}, documents that serve as well as a listed one; `label`
("unanswerable" rows are left out); `answer_in_gold`: where rows have it, those that say false are left out and
documents count by title, since several documents of one title may hold the answer.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from standard.domain.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SupportedQuestion:
    """A question, and for each document that supports it the documents any of which will do.

    `support` is never empty. `multiple` tells whether it needs more than one document.
    """

    id: str
    text: str
    support: tuple[frozenset[str], ...]

    @property
    def multiple(self) -> bool:
        """Whether more than one document is needed."""
        return len(self.support) > 1


@dataclass(frozen=True, slots=True)
class QaSet:
    """A folder's content. `documents` maps ids to (title, text); support is by title where `by_title`."""

    name: str
    documents: Mapping[str, tuple[str, str]]
    questions: tuple[SupportedQuestion, ...]
    by_title: bool = False
    sliced: str = field(default="")

    @property
    def multi_document(self) -> bool:
        """Whether some question needs more than one document."""
        return any(question.multiple for question in self.questions)


def find_sets(directory: Path, names: Sequence[str] = ()) -> list[Path]:
    """Return the folders of sets below `directory` (or itself), by name; raises NotFound for missing ones."""
    if not directory.is_dir():
        raise NotFound(f"there is no folder {directory}")
    folders = [directory] if _is_set(directory) else sorted(path for path in directory.iterdir() if _is_set(path))
    if not folders:
        raise NotFound(f"{directory} holds no set: a folder with corpus*.jsonl and questions.jsonl")
    missing = sorted(set(names) - {folder.name for folder in folders})
    if missing:
        known = ", ".join(folder.name for folder in folders)
        raise NotFound(f"{directory} has no set {', '.join(missing)}; there are {known}")
    return [folder for folder in folders if not names or folder.name in names]


def read_set(folder: Path) -> QaSet:
    """Read a folder; raises InvalidInput with file and line where it is malformed."""
    documents: dict[str, tuple[str, str]] = {}
    for file in sorted(folder.glob("corpus*.jsonl")):
        for where, row in read_rows(file):
            documents[_text(row, "id", where)] = (str(row.get("title") or ""), _text(row, "text", where))
    rows = list(read_rows(folder / "questions.jsonl"))
    by_title = any("answer_in_gold" in row for _, row in rows)
    questions = []
    for where, row in rows:
        if row.get("label") == "unanswerable" or not row.get("supporting_ids") or row.get("answer_in_gold") is False:
            continue
        stand_ins = row.get("alt_supporting_ids")
        support = []
        for document_id in dict.fromkeys(_ids(row["supporting_ids"], where)):
            others = stand_ins.get(document_id, []) if isinstance(stand_ins, dict) else []
            choices = [document_id, *_ids(others, where)]
            unknown = [choice for choice in choices if choice not in documents]
            if unknown:
                raise InvalidInput(where, f"names the document {unknown[0]!r}, which the corpus does not hold")
            support.append(frozenset(documents[choice][0] if by_title else choice for choice in choices))
        questions.append(SupportedQuestion(_text(row, "id", where), _text(row, "question", where), tuple(support)))
    if not questions:
        raise InvalidInput(str(folder / "questions.jsonl"), "holds no question with supporting_ids")
    return QaSet(folder.name, documents, tuple(questions), by_title)


def cut(qa: QaSet, *, questions: int, documents: int, seed: int = 0) -> QaSet:
    """Return a smaller set: so many questions at most, their support, and other documents up to so many in all."""
    if len(qa.questions) <= questions and len(qa.documents) <= documents:
        return qa
    chance = random.Random(f"{seed} {qa.name}")  # noqa: S311 - a reproducible sample
    kept = sorted(chance.sample(range(len(qa.questions)), min(questions, len(qa.questions))))
    asked = tuple(qa.questions[index] for index in kept)
    wanted = {choice for question in asked for choices in question.support for choice in choices}
    needed = [key for key, (title, _) in qa.documents.items() if (title if qa.by_title else key) in wanted]
    others = sorted(set(qa.documents) - set(needed))
    more = set(chance.sample(others, max(0, min(len(others), documents - len(needed))))) | set(needed)
    smaller = {key: value for key, value in qa.documents.items() if key in more}
    return replace(qa, documents=smaller, questions=asked, sliced=f"{questions}q-{documents}d-{seed}")


def _is_set(path: Path) -> bool:
    return path.is_dir() and (path / "questions.jsonl").is_file() and any(path.glob("corpus*.jsonl"))


def read_rows(file: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each row of a file of JSON lines with where it stands; raises InvalidInput there for what is no object."""
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{file}:{number}"
            try:
                row = json.loads(line)
            except ValueError as problem:
                raise InvalidInput(where, f"is not JSON: {problem}") from problem
            if not isinstance(row, dict):
                raise InvalidInput(where, "is not a JSON object")
            yield where, row


def _ids(value: object, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidInput(where, "has supporting ids that are no list of texts")
    return value


def _text(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidInput(where, f"has no text {key!r}")
    return value
