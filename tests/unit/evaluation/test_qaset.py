"""Reading sets of questions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from router.evaluation.qaset import cut, find_sets, read_set
from standard.domain.errors import InvalidInput, NotFound


def write(folder: Path, documents: Sequence[object], questions: Sequence[object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus.jsonl", documents), ("questions.jsonl", questions)):
        (folder / name).write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return folder


def documents(count: int) -> list[dict[str, str]]:
    return [{"id": f"d{number}", "title": f"T{number // 2}", "text": f"text {number}"} for number in range(count)]


def test_answerable_questions_are_read_with_their_stand_ins(tmp_path: Path) -> None:
    questions = [
        {"id": "q0", "question": "a?", "supporting_ids": ["d0", "d1"], "alt_supporting_ids": {"d1": ["d2"]}},
        {"id": "q1", "question": "b?", "supporting_ids": [], "label": "unanswerable"},
        {"id": "q2", "question": "c?", "supporting_ids": ["d3"]},
    ]
    qa = read_set(write(tmp_path / "one", documents(4), questions))
    assert [question.id for question in qa.questions] == ["q0", "q2"]
    assert qa.questions[0].support == (frozenset({"d0"}), frozenset({"d1", "d2"}))
    assert qa.multi_document
    assert not qa.by_title


def test_sets_with_answer_in_gold_count_by_title(tmp_path: Path) -> None:
    questions = [
        {"id": "q0", "question": "a?", "supporting_ids": ["d0"], "answer_in_gold": True},
        {"id": "q1", "question": "b?", "supporting_ids": ["d2"], "answer_in_gold": False},
    ]
    qa = read_set(write(tmp_path / "one", documents(4), questions))
    assert qa.by_title
    assert [question.support for question in qa.questions] == [(frozenset({"T0"}),)]


def test_a_slice_keeps_the_support_and_is_the_same_each_time(tmp_path: Path) -> None:
    questions = [{"id": f"q{n}", "question": "?", "supporting_ids": [f"d{n}", f"d{n + 1}"]} for n in range(40)]
    qa = read_set(write(tmp_path / "one", documents(100), questions))
    part = cut(qa, questions=5, documents=30, seed=3)
    assert len(part.questions) == 5
    assert len(part.documents) == 30
    assert all(choices & set(part.documents) for question in part.questions for choices in question.support)
    assert part == cut(qa, questions=5, documents=30, seed=3)
    assert part.questions != cut(qa, questions=5, documents=30, seed=4).questions
    assert cut(qa, questions=100, documents=100) is qa


@pytest.mark.parametrize(
    ("documents_", "questions", "problem"),
    [
        (["{"], [], r"corpus.jsonl:1: is not JSON"),
        ([{"id": "d", "text": ""}], [], r"corpus.jsonl:1: has no text 'text'"),
        (documents(1), [[]], r"questions.jsonl:1: is not a JSON object"),
        (documents(1), [{"id": "q", "question": "?", "supporting_ids": ["x"]}], r":1: names the document 'x'"),
        (documents(1), [{"id": "q", "question": "?", "supporting_ids": "d0"}], r":1: has supporting ids"),
        (documents(1), [], "holds no question"),
    ],
)
def test_what_is_malformed_is_named(
    tmp_path: Path, documents_: list[object], questions: list[object], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_set(write(tmp_path / "one", documents_, questions))


def test_sets_are_found_by_name(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write(tmp_path / name, documents(1), [])
    (tmp_path / "notes").mkdir()
    assert [folder.name for folder in find_sets(tmp_path)] == ["a", "b"]
    assert find_sets(tmp_path, ["b"]) == [tmp_path / "b"]
    assert find_sets(tmp_path / "a") == [tmp_path / "a"]
    with pytest.raises(NotFound, match="no set c; there are a, b"):
        find_sets(tmp_path, ["c"])
    with pytest.raises(NotFound, match="holds no set"):
        find_sets(tmp_path / "notes")
    with pytest.raises(NotFound, match="no folder"):
        find_sets(tmp_path / "nowhere")
