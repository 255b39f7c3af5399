"""Read a collection of corpus-grounded questions: its documents, its questions, and those without an answer.

The failure this prevents: a row of another shape that is read as something else. Every line is checked for its shape
here, and an error names the file and the line or the row; whether a row is true is for check_collections.py to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Document:
    """One document of the corpus; `text` is what ranges count in."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Range:
    """Half-open range of code points in a document's text."""

    document_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Question:
    """An answerable question as it stands in the file."""

    id: str
    question: str
    label: str
    answers: tuple[str, ...]
    supporting_ids: tuple[str, ...]
    supporting_paths: tuple[str, ...]
    hops: int
    type: str
    evidence: tuple[Range, ...]
    alternatives: Mapping[str, tuple[str, ...]]
    bridge: str
    derived: bool


@dataclass(frozen=True, slots=True)
class Unanswerable:
    """A question that the corpus does not answer, why, and the documents that come nearest."""

    id: str
    question: str
    why: str
    nearest_ids: tuple[str, ...]


def rows(path: Path) -> list[dict[str, Any]]:
    """JSON objects, one a line; anything else is an error that names file and line."""
    found: list[dict[str, Any]] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path}: cannot be read ({error})") from error
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise SystemExit(f"{path}:{number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise SystemExit(f"{path}:{number}: a line must be one JSON object")
        found.append(row)
    return found


def load_corpus(path: Path) -> dict[str, Document]:
    """Documents by id."""
    try:
        return {row["id"]: Document(row["id"], row["text"]) for row in rows(path)}
    except KeyError as error:
        raise SystemExit(f"{path}: a document without {error}") from error


def strings(value: object) -> tuple[str, ...]:
    """A JSON list of non-empty strings as a tuple; anything else is a TypeError."""
    if not isinstance(value, list) or not all(isinstance(x, str) and x.strip() for x in value):
        raise TypeError(f"expected a list of strings, not {value!r}")
    return tuple(value)


def load_questions(path: Path) -> list[Question]:
    """Answerable questions; a row of another shape is an error that names it."""
    questions = []
    for row in rows(path):
        try:
            questions.append(
                Question(
                    id=str(row["id"]),
                    question=str(row["question"]),
                    label=str(row["label"]),
                    answers=strings(row["answers"]),
                    supporting_ids=strings(row["supporting_ids"]),
                    supporting_paths=strings(row["supporting_paths"]),
                    hops=int(row["hops"]),
                    type=str(row["type"]),
                    evidence=tuple(
                        Range(str(e["document_id"]), int(e["start"]), int(e["end"])) for e in row["evidence"]
                    ),
                    alternatives={k: strings(v) for k, v in row.get("alt_supporting_ids", {}).items()},
                    bridge=str(row.get("bridge", "")),
                    derived=bool(row.get("derived", False)),
                )
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SystemExit(f"{path}: {row.get('id', '?')}: {error!r}") from error
    return questions


def load_unanswerable(path: Path) -> list[Unanswerable]:
    """Questions without an answer in the corpus."""
    questions = []
    for row in rows(path):
        try:
            questions.append(Unanswerable(row["id"], row["question"], row["why"], strings(row["nearest_ids"])))
        except (KeyError, TypeError) as error:
            raise SystemExit(f"{path}: {row.get('id', '?')}: {error!r}") from error
    return questions
