"""What the check of corpus-grounded questions refuses, on a corpus of three made-up notes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from classifier.data import check_collections as checks
from classifier.data.collection_rows import Document, Question, Range, load_questions, rows

CORPUS = {
    "a": Document("a", "The Heron is moored at Quay 4.\n\nQuay 4 closes at dusk."),
    "b": Document("b", "Quay 4 is looked after by Mirja Oksa, who keeps the keys of all the sheds there."),
    "c": Document("c", "The Heron is moored at Quay 4. Quay 4 is looked after by Mirja Oksa and nobody else."),
}
PATHS = {x: f"notes/{x}.md" for x in CORPUS}


def at(document_id: str, quote: str) -> Range:
    start = CORPUS[document_id].text.index(quote)
    return Range(document_id, start, start + len(quote))


BRIDGE = Question(
    id="q",
    question="who has the keys where the heron lies",
    label="complex",
    answers=("Mirja Oksa",),
    supporting_ids=("a", "b"),
    supporting_paths=("notes/a.md", "notes/b.md"),
    hops=2,
    type="bridge",
    evidence=(at("a", "The Heron is moored at Quay 4."), at("b", "Mirja Oksa, who keeps the keys")),
    alternatives={},
    bridge="Quay 4",
    derived=False,
)


def test_a_bridge_over_two_documents_is_accepted() -> None:
    assert checks.check_shape(BRIDGE, CORPUS, PATHS) == []
    assert checks.check_facts(BRIDGE, CORPUS) == ([], [])


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (replace(BRIDGE, evidence=(Range("a", 0, 9), Range("b", 3, 999))), "outside b"),
        (replace(BRIDGE, evidence=(Range("a", 0, 9), Range("b", 5, 5))), "outside b"),
        (replace(BRIDGE, evidence=(at("a", "The Heron"),)), "evidence lies in ['a']"),
        (replace(BRIDGE, supporting_ids=("a", "z")), "unknown documents ['z']"),
        (replace(BRIDGE, supporting_paths=("notes/b.md", "notes/a.md")), "supporting_paths"),
        (replace(BRIDGE, alternatives={"c": ("a",)}), "stand-in"),
        (replace(BRIDGE, hops=3), "hops 3"),
        (replace(BRIDGE, label="simple"), "simple, but its evidence lies in 2 documents"),
        (replace(BRIDGE, label="hard"), "label 'hard'"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(question: Question, complaint: str) -> None:
    assert complaint in " | ".join(checks.check_shape(question, CORPUS, PATHS))


def test_a_complex_question_that_one_document_answers_is_refused() -> None:
    shortcut = replace(BRIDGE, evidence=(BRIDGE.evidence[0], at("b", "looked after by Mirja Oksa")))
    broken, _ = checks.check_facts(shortcut, CORPUS)
    assert broken == ["c holds every range on its own"]


def test_an_answer_that_no_range_holds_must_be_marked_as_derived() -> None:
    broken, _ = checks.check_facts(replace(BRIDGE, answers=("Jonte Falk",)), CORPUS)
    assert "no answer" in broken[0]
    assert checks.check_facts(replace(BRIDGE, answers=("Jonte Falk",), derived=True), CORPUS) == ([], [])


def test_yes_is_never_taken_from_a_range() -> None:
    broken, _ = checks.check_facts(replace(BRIDGE, answers=("yes", "Mirja Oksa")), CORPUS)
    assert any("yes or no" in x for x in broken)


def test_a_question_that_names_its_bridge_is_refused() -> None:
    broken, _ = checks.check_facts(replace(BRIDGE, question="who looks after quay 4, with the heron"), CORPUS)
    assert any("names its bridge" in x for x in broken)


def test_seven_words_in_a_row_of_a_document_are_found_whatever_the_case_and_punctuation() -> None:
    assert checks.check_overlap({"q": "so WHO keeps, the keys of all the -- sheds?"}, CORPUS)
    assert not checks.check_overlap({"q": "who keeps the keys of all sheds there"}, CORPUS)


def test_nearly_the_same_question_twice_is_found() -> None:
    same = {"p": "who has the keys where the heron lies", "q": "Who has the keys, where the heron lies?"}
    assert checks.check_duplicates(same) == ["p and q are nearly the same question"]


def labelled(texts: Sequence[tuple[str, str]]) -> list[Question]:
    return [replace(BRIDGE, id=str(i), question=text, label=label) for i, (label, text) in enumerate(texts)]


def test_length_cue_and_opener_that_give_the_label_away_are_refused() -> None:
    report = checks.Report()
    leaky = [("simple", f"where is shed {i}") for i in range(12)]
    leaky += [("complex", f"compare the keys of shed {i} and the keys of quay {i}") for i in range(12)]
    checks.check_balance(labelled(leaky), report)
    found = " | ".join(report.broken)
    assert "length: AUC 1.000 of words" in found
    assert "cue 'compare' leans: 0 simple, 12 complex" in found
    assert "opener 'where' leans: 12 simple, 0 complex" in found


def test_a_changed_document_is_refused_by_its_checksum(tmp_path: Path) -> None:
    declared = tmp_path / "documents.jsonl"
    digest = {x: hashlib.sha256(d.text.encode()).hexdigest() for x, d in CORPUS.items()}
    digest["b"] = digest["a"]
    lines = [json.dumps({"id": x, "path": PATHS[x], "sha256": digest[x]}) for x in CORPUS]
    declared.write_text("\n".join(lines), encoding="utf-8")
    report = checks.Report()
    assert checks.check_documents(declared, CORPUS, report) == PATHS
    assert report.broken == ["b: the text is another one than the ranges were made for"]


def test_a_row_of_another_shape_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": "x1", "question": "?", "label": "simple", "answers": "one"}\n', encoding="utf-8")
    with pytest.raises(SystemExit, match="x1"):
        load_questions(path)
    path.write_text("not json\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"questions\.jsonl:1"):
        load_questions(path)


@pytest.mark.parametrize("name", sorted(p.name for p in checks.COLLECTIONS.iterdir() if p.is_dir()))
def test_a_shipped_collection_is_consistent_without_its_documents(name: str) -> None:
    folder = checks.COLLECTIONS / name
    declared = {row["id"]: row for row in rows(folder / "documents.jsonl")}
    questions = load_questions(folder / "questions.jsonl")
    assert len({q.id for q in questions}) == len(questions)
    for q in questions:
        assert q.supporting_paths == tuple(declared[x]["path"] for x in q.supporting_ids)
        assert all(0 <= e.start < e.end <= declared[e.document_id]["characters"] for e in q.evidence), q.id
        assert (len(q.supporting_ids) > 1) == (q.label == "complex"), q.id
