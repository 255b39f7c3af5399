"""The demo questions can be answered from the documents they name, and their form does not give the label away."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import product
from typing import Any

import pytest

from deploy.demo.build import HERE, SOURCES
from deploy.demo.document import read_documents

Row = dict[str, Any]
BODIES = {document.id: document.body for document in read_documents(SOURCES)}


def rows(name: str) -> list[Row]:
    """The lines of a question file."""
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


QUESTIONS = rows("questions.jsonl")
UNANSWERABLE = rows("questions_unanswerable.jsonl")
DEMO = rows("demo_questions.jsonl")
SIMPLE = [row for row in QUESTIONS if row["label"] == "simple"]
COMPLEX = [row for row in QUESTIONS if row["label"] == "complex"]


def words(row: Row) -> set[str]:
    """The distinct words of a question in lower case."""
    return set(re.findall(r"[a-z']+", row["question"].lower()))


def auc(negatives: list[int], positives: list[int]) -> float:
    """The chance that a positive is larger than a negative, ties counted half."""
    wins = sum((high > low) + 0.5 * (high == low) for low, high in product(negatives, positives))
    return wins / (len(negatives) * len(positives))


def test_there_are_enough_questions_of_each_label() -> None:
    assert len(SIMPLE) >= 60
    assert len(COMPLEX) >= 60
    assert len(SIMPLE) + len(COMPLEX) == len(QUESTIONS)
    assert len(UNANSWERABLE) >= 15


def test_ids_and_questions_are_unique_over_the_files() -> None:
    for key in ("id", "question"):
        assert max(Counter(row[key] for row in QUESTIONS + UNANSWERABLE + DEMO).values()) == 1


@pytest.mark.parametrize("row", QUESTIONS, ids=lambda row: row["id"])
def test_every_quote_stands_in_its_document(row: Row) -> None:
    for evidence in row["evidence"]:
        assert evidence["quote"] in BODIES[evidence["document_id"]]


@pytest.mark.parametrize("row", QUESTIONS, ids=lambda row: row["id"])
def test_evidence_comes_from_each_supporting_document_and_from_no_other(row: Row) -> None:
    assert {evidence["document_id"] for evidence in row["evidence"]} == set(row["supporting_ids"])
    assert len(set(row["supporting_ids"])) == len(row["supporting_ids"]) == row["hops"]
    assert row["answers"]
    assert all(row["answers"])


def test_simple_questions_need_one_document_and_complex_ones_two_to_four() -> None:
    assert {row["hops"] for row in SIMPLE} == {1}
    assert {row["hops"] for row in COMPLEX} <= {2, 3, 4}


@pytest.mark.parametrize("row", COMPLEX, ids=lambda row: row["id"])
def test_no_single_document_holds_all_the_evidence(row: Row) -> None:
    quotes = [evidence["quote"] for evidence in row["evidence"]]
    assert not any(all(quote in body for quote in quotes) for body in BODIES.values())
    stand_ins = row.get("alt_supporting_ids", {})
    assert not any(set(stand_ins.get(one, [])) & set(row["supporting_ids"]) for one in row["supporting_ids"])


def test_stand_ins_are_other_documents_for_a_supporting_one() -> None:
    for row in QUESTIONS:
        for document, stand_ins in row.get("alt_supporting_ids", {}).items():
            assert document in row["supporting_ids"]
            assert stand_ins
            assert all(stand_in in BODIES for stand_in in stand_ins)


def test_half_of_the_complex_questions_are_bridges_that_do_not_name_the_bridge() -> None:
    bridges = [row for row in COMPLEX if "bridge" in row]
    assert len(bridges) * 2 >= len(COMPLEX)
    for row in bridges:
        for part in row["bridge"].split(", "):
            assert part.lower() not in row["question"].lower(), row["id"]


def test_questions_do_not_repeat_the_documents_wording() -> None:
    for row in QUESTIONS:
        text = " ".join(re.findall(r"\w+", row["question"].lower())).split()
        for document in row["supporting_ids"]:
            body = " " + " ".join(re.findall(r"\w+", BODIES[document].lower())) + " "
            shared = [" ".join(text[i : i + 7]) for i in range(len(text) - 6)]
            assert not any(f" {run} " in body for run in shared), row["id"]


@pytest.mark.parametrize("unit", [r"\S+", r"."], ids=["words", "characters"])
def test_length_does_not_tell_the_labels_apart(unit: str) -> None:
    simple, complex_ = ([len(re.findall(unit, row["question"])) for row in group] for group in (SIMPLE, COMPLEX))
    area = auc(simple, complex_)
    assert max(area, 1 - area) <= 0.56


@pytest.mark.parametrize("cue", ["and", "or", "compare", "compared", "which", "same", "other", "who", "how", "than"])
def test_a_cue_word_is_about_as_frequent_in_both_labels(cue: str) -> None:
    simple = sum(cue in words(row) for row in SIMPLE) / len(SIMPLE)
    complex_ = sum(cue in words(row) for row in COMPLEX) / len(COMPLEX)
    assert abs(simple - complex_) <= 0.10


@pytest.mark.parametrize("trait", [r"\?$", r"^[a-z]"], ids=["question mark", "lower case"])
def test_case_and_final_question_mark_do_not_tell_the_labels_apart(trait: str) -> None:
    simple, complex_ = (
        sum(re.search(trait, row["question"]) is not None for row in group) / len(group) for group in (SIMPLE, COMPLEX)
    )
    assert abs(simple - complex_) <= 0.08


def test_questions_reach_most_of_the_corpus() -> None:
    reached = {document for row in QUESTIONS for document in row["supporting_ids"]}
    assert len(reached) >= 0.9 * len(BODIES)


def test_unanswerable_questions_say_why_and_name_the_nearest_documents() -> None:
    for row in UNANSWERABLE:
        assert row["label"] == "unanswerable"
        assert row["why"]
        assert row["nearest_ids"]
        assert all(document in BODIES for document in row["nearest_ids"])


def test_the_demo_asks_every_kind_of_question() -> None:
    assert len(DEMO) >= 12
    kinds = Counter(row["kind"] for row in DEMO)
    assert {"simple", "multi_hop", "comparison", "unanswerable", "ambiguous"} == kinds.keys()
    assert Counter(row["expect"] for row in DEMO).keys() == {"answered", "unanswerable", "needs_clarification"}


@pytest.mark.parametrize("row", DEMO, ids=lambda row: row["id"])
def test_a_demo_question_names_documents_that_exist(row: Row) -> None:
    assert all(document in BODIES for document in row["expected_documents"])
    assert bool(row["expected_documents"]) == (row["expect"] != "unanswerable")
    assert (row["kind"] in {"multi_hop", "comparison"}) == (len(row["expected_documents"]) > 1)
