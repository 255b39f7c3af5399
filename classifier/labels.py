"""Somebody's own labelled questions: a CSV or JSONL file read row by row, what is wrong with it told, the rest kept.

CSV needs a header with `question` and `label`; JSONL a {question, label} a line. A label is simple or complex, or the
route that would have been right: standard or agentic. Lines that are not UTF-8, lack something or are too long are
refused one by one. Memory is bounded: of more than MAX_ROWS rows a random sample is kept, and that is said.
"""

from __future__ import annotations

import csv
import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from classifier.errors import BadLabels
from classifier.neutral import folded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_ROWS = 5_000
MAX_LINE = 200_000
"""Bytes of a line; longer ones are refused, not read into memory."""
MAX_QUESTION = 8_000
_SHOWN = 20
LABELS = {"simple": False, "standard": False, "complex": True, "agentic": True}


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that was not taken: its number from 1, and why."""

    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class OwnLabels:
    """What a file gave. `questions` and `complex` are parallel, without repeats.

    `conflicts` are questions that came with both labels; they are left out. `refused` holds the first of
    `refused_count` refused lines; `read` counts the good rows before sampling and merging.
    """

    questions: tuple[str, ...]
    complex: tuple[bool, ...]
    read: int
    sampled: bool
    repeats: int
    conflicts: tuple[str, ...] = ()
    refused_count: int = 0
    refused: tuple[Refused, ...] = field(default=())


def read_labels(path: Path, *, most: int = MAX_ROWS, seed: int = 0) -> OwnLabels:
    """Read a file of labels. Raises BadLabels where nothing in it can be used, or the file cannot be read."""
    rng = random.Random(seed)  # noqa: S311 - a reproducible sample
    kept: list[tuple[str, bool]] = []
    refused: list[Refused] = []
    read = refused_count = 0
    try:
        for number, row in _rows(path):
            problem = row if isinstance(row, str) else _problem(row)
            if problem:
                refused_count += 1
                if len(refused) < _SHOWN:
                    refused.append(Refused(number, problem))
                continue
            assert isinstance(row, dict)  # noqa: S101 - a string was a problem
            pair = (str(row["question"]).strip(), LABELS[str(row["label"]).strip().lower()])
            read += 1
            if len(kept) < most:
                kept.append(pair)
            elif (place := rng.randrange(read)) < most:
                kept[place] = pair
    except OSError as error:
        raise BadLabels(f"{path} cannot be read ({error.strerror})") from None
    if not kept:
        first = f"; line {refused[0].line}: {refused[0].problem}" if refused else ""
        raise BadLabels(f"{path} holds no labelled question{first}")
    return _merged(kept, read, refused_count, refused)


def _merged(kept: list[tuple[str, bool]], read: int, refused_count: int, refused: list[Refused]) -> OwnLabels:
    first: dict[str, str] = {}
    said: dict[str, set[bool]] = {}
    for question, label in kept:
        key = folded(question)
        first.setdefault(key, question)
        said.setdefault(key, set()).add(label)
    clear = [key for key, labels in said.items() if len(labels) == 1]
    return OwnLabels(
        questions=tuple(first[key] for key in clear),
        complex=tuple(next(iter(said[key])) for key in clear),
        read=read,
        sampled=read > len(kept),
        repeats=len(kept) - len(said),
        conflicts=tuple(first[key] for key, labels in said.items() if len(labels) > 1),
        refused_count=refused_count,
        refused=tuple(refused),
    )


def _problem(row: dict[str, object]) -> str:
    question, label = row.get("question"), row.get("label")
    if not isinstance(question, str) or not question.strip():
        return "has no question"
    if len(question) > MAX_QUESTION:
        return f"has a question of {len(question)} characters; at most {MAX_QUESTION} are read"
    if not isinstance(label, str) or label.strip().lower() not in LABELS:
        return f"has the label {label!r}, which is none of {', '.join(LABELS)}"
    return ""


def _rows(path: Path) -> Iterator[tuple[int, dict[str, object] | str]]:
    """Yield line numbers with a row, or with what is wrong with the line."""
    lines = _lines(path)
    if path.suffix.lower() == ".csv":
        yield from _csv_rows(lines)
        return
    for number, line in lines:
        if isinstance(line, _Bad):
            yield number, line.problem
        elif line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                yield number, f"is no JSON ({error})"
                continue
            yield number, row if isinstance(row, dict) else "is no JSON object"


def _csv_rows(lines: Iterator[tuple[int, str | _Bad]]) -> Iterator[tuple[int, dict[str, object] | str]]:
    bad: list[tuple[int, str]] = []
    at = [0]

    def good() -> Iterator[str]:
        for number, line in lines:
            at[0] = number
            if isinstance(line, _Bad):
                bad.append((number, line.problem))
            else:
                yield line

    reader = csv.DictReader(good())
    if reader.fieldnames is None or not {"question", "label"} <= set(reader.fieldnames):
        raise BadLabels("a CSV of labels needs a header line with the columns question and label")
    try:
        for row in reader:
            yield from bad
            bad.clear()
            yield at[0], dict(row)
    except csv.Error as error:
        yield at[0], f"is no CSV ({error}); what follows was not read"
    yield from bad


@dataclass(frozen=True, slots=True)
class _Bad:
    problem: str


def _lines(path: Path) -> Iterator[tuple[int, str | _Bad]]:
    with path.open("rb") as file:
        number = 0
        while True:
            raw = file.readline(MAX_LINE)
            if not raw:
                return
            number += 1
            if len(raw) == MAX_LINE and not raw.endswith(b"\n"):
                while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                    pass
                yield number, _Bad(f"is longer than {MAX_LINE} bytes")
                continue
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                yield number, _Bad("is not UTF-8; save the file as UTF-8")
