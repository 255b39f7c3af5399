"""Reading questions with known answers, gold decompositions and documents held out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from router.evaluation.answers.questions import read_answers
from standard.domain.errors import InvalidInput

Row = Mapping[str, object]
QUESTION: Row = {"id": "q", "question": "Who?", "supporting_ids": ["d0"], "answers": ["Ann", " "]}
STEPS = [
    {"question": "Kittiwake >> captain", "answer": "Anna Berg"},
    {"question": "birthplace of #1, after #7", "answer": "Tromvik"},
]


def write(folder: Path, questions: Sequence[Row], unanswerable: Sequence[Row] = ()) -> Path:
    documents = [{"id": f"d{n}", "title": f"T{n}", "text": f"text {n}"} for n in range(30)]
    files = {"corpus": documents, "questions": questions, "questions_unanswerable": unanswerable}
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_earlier_answers_are_filled_into_the_gold_lookups(tmp_path: Path) -> None:
    found = read_answers(write(tmp_path, [{**QUESTION, "decomposition": STEPS}]))
    assert found.questions[0].lookups == ("Kittiwake captain", "birthplace of Anna Berg, after")
    assert found.questions[0].answers == ("Ann",)


def test_with_gold_only_questions_with_a_decomposition_are_asked(tmp_path: Path) -> None:
    other = {**QUESTION, "id": "other"}
    folder = write(tmp_path, [{**QUESTION, "decomposition": STEPS}, other], [{"id": "u", "question": "What?"}])
    assert [question.id for question in read_answers(folder, gold=True).questions] == ["q"]
    with pytest.raises(InvalidInput, match="no question with a gold decomposition"):
        read_answers(write(tmp_path, [other]), gold=True)


def test_the_union_of_what_is_held_out_is_missing_from_the_reduced_corpus_alone(tmp_path: Path) -> None:
    unanswerable: list[Row] = [
        {"id": "u0", "question": "a?", "held_out_ids": ["d1", "d2"]},
        {"id": "u1", "question": "b?", "held_out_ids": ["d2", "d3"]},
        {"id": "u2", "question": "c?"},
    ]
    found = read_answers(write(tmp_path, [QUESTION], unanswerable))
    assert found.held_out == {"d1", "d2", "d3"}
    assert set(found.qa.documents) - set(found.reduced.documents) == {"d1", "d2", "d3"}
    assert [question.held_out for question in found.questions] == [False, True, True, False]
    assert [question.answerable for question in found.questions] == [True, False, False, False]
    assert found.reduced.sliced != found.qa.sliced  # a collection of its own


def test_a_sample_is_the_same_each_time_and_its_support_stays_in_a_cut_corpus(tmp_path: Path) -> None:
    rows = [{**QUESTION, "id": f"q{n}", "supporting_ids": [f"d{n}"]} for n in range(20)]
    folder = write(tmp_path, rows)
    one, again, other = (read_answers(folder, limit=5, documents=10, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.questions != other.questions
    assert len(one.questions) == 5
    assert len(one.qa.documents) == 10
    assert all(choices <= set(one.qa.documents) for question in one.questions for choices in question.support)


@pytest.mark.parametrize(
    ("questions", "unanswerable", "problem"),
    [
        ([{**QUESTION, "answers": "Ann"}], [], r"questions.jsonl:1.*answers that are no list of texts"),
        ([{**QUESTION, "decomposition": {"a": 1}}], [], "no list of objects"),
        ([{**QUESTION, "decomposition": [{"answer": "x"}]}], [], "step has no question"),
        ([QUESTION], [{"id": "u", "question": ""}], r"questions_unanswerable.jsonl:1.*no text 'id' or 'question'"),
        ([QUESTION], [{"id": "u", "question": "?", "held_out_ids": [1]}], "held_out_ids that are no list"),
    ],
)
def test_what_is_malformed_is_named(
    tmp_path: Path, questions: Sequence[Row], unanswerable: Sequence[Row], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_answers(write(tmp_path, questions, unanswerable))
