"""Questions with known answers: a set of `router.evaluation.qaset` with what answers are judged by.

Beside the keys that retrieval is measured with, a row may have `answers` (any of them is right) and `decomposition`
([{question, answer}, …], where #1 stands for the first answer). `questions_unanswerable.jsonl` holds rows that the
corpus does not answer; those with `held_out_ids` are asked over the corpus without the union of these documents, which
serves for nothing else.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from router.evaluation.qaset import cut, read_rows, read_set
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from router.evaluation.qaset import QaSet

UNANSWERABLE = "questions_unanswerable.jsonl"
_EARLIER = re.compile(r"#(\d+)")


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question and what is known of it.

    `support` as in SupportedQuestion, empty for an unanswerable question; `answers` may be empty where none are known.
    `lookups` are the searches of its gold decomposition with earlier answers filled in, empty where there is none.
    `held_out`: it is to be asked over the reduced corpus.
    """

    id: str
    text: str
    support: tuple[frozenset[str], ...] = ()
    answers: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    held_out: bool = False

    @property
    def answerable(self) -> bool:
        """Does the corpus answer it?"""
        return bool(self.support)


@dataclass(frozen=True, slots=True)
class AnswerSet:
    """A set's corpus and the questions that are asked. `held_out` are the documents of its reduced corpus's absence."""

    qa: QaSet
    questions: tuple[AskedQuestion, ...]
    held_out: frozenset[str] = frozenset()

    @property
    def reduced(self) -> QaSet:
        """The corpus without what is held out, as a set of its own."""
        documents = {key: value for key, value in self.qa.documents.items() if key not in self.held_out}
        part = f"{self.qa.sliced}-held-out" if self.qa.sliced else "held-out"
        return replace(self.qa, documents=documents, sliced=part)


def read_answers(folder: Path, *, limit: int = 0, documents: int = 0, seed: int = 0, gold: bool = False) -> AnswerSet:
    """Read a folder; a seeded sample of at most `limit` questions of either kind, 0 = all.

    `documents` (0 = all) cuts the corpus to a seeded part that holds the support of what is asked. With `gold` only
    questions with a decomposition are taken. Raises InvalidInput with file and line where a row is malformed.
    """
    qa = read_set(folder)
    rows = {str(row.get("id")): (where, row) for where, row in read_rows(folder / "questions.jsonl")}
    known = []
    for question in qa.questions:
        where, row = rows[question.id]
        lookups = _lookups(row, where)
        if gold and not lookups:
            continue
        known.append(AskedQuestion(question.id, question.text, question.support, _answers(row, where), lookups))
    if not known:
        raise InvalidInput(str(folder / "questions.jsonl"), "holds no question with a gold decomposition")
    unknown, held_out = ([], frozenset[str]()) if gold else _unanswerable(folder)
    asked = _sample(known, limit, f"{seed} {qa.name}")
    if documents:
        chosen = {question.id for question in asked}
        part = replace(qa, questions=tuple(question for question in qa.questions if question.id in chosen))
        qa = cut(part, questions=len(part.questions), documents=documents, seed=seed)
    held_out &= qa.documents.keys()
    return AnswerSet(qa, (*asked, *_sample(unknown, limit, f"{seed} {qa.name} unanswerable")), held_out)


def _unanswerable(folder: Path) -> tuple[list[AskedQuestion], frozenset[str]]:
    file = folder / UNANSWERABLE
    if not file.is_file():
        return [], frozenset()
    questions, held_out = [], set[str]()
    for where, row in read_rows(file):
        held = _texts(row, "held_out_ids", where)
        held_out |= set(held)
        name, text = row.get("id"), row.get("question")
        if not isinstance(name, str) or not isinstance(text, str) or not text:
            raise InvalidInput(where, "has no text 'id' or 'question'")
        questions.append(AskedQuestion(name, text, held_out=bool(held)))
    return questions, frozenset(held_out)


def _sample(questions: list[AskedQuestion], limit: int, seed: str) -> list[AskedQuestion]:
    if not limit or limit >= len(questions):
        return questions
    chosen = random.Random(seed).sample(range(len(questions)), limit)  # noqa: S311 - a reproducible sample
    return [questions[place] for place in sorted(chosen)]


def _answers(row: Mapping[str, object], where: str) -> tuple[str, ...]:
    return tuple(answer for answer in _texts(row, "answers", where) if answer.strip())


def _lookups(row: Mapping[str, object], where: str) -> tuple[str, ...]:
    steps = row.get("decomposition") or []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise InvalidInput(where, "has a decomposition that is no list of objects")
    found: list[str] = []
    answers = [str(step.get("answer", "")) for step in steps]
    for step in steps:
        question = step.get("question")
        if not isinstance(question, str) or not question.strip():
            raise InvalidInput(where, "has a decomposition whose step has no question")
        filled = _EARLIER.sub(lambda match: _earlier(answers, int(match[1])), question)
        found.append(" ".join(filled.replace(">>", " ").split()))
    return tuple(found)


def _earlier(answers: list[str], number: int) -> str:
    return answers[number - 1] if 0 < number <= len(answers) else ""


def _texts(row: Mapping[str, object], key: str, where: str) -> list[str]:
    value = row.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidInput(where, f"has {key} that are no list of texts")
    return value
