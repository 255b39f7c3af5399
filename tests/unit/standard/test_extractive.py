"""Answers made of sentences: exact, short, cited, and withheld where nothing bears on the question."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from standard.domain.errors import Damaged
from standard.domain.passage import RetrievedPassage
from standard.extractive.answer_type import AnswerType, expected_type, offers
from standard.extractive.extract import NOTHING, SHORTLIST, draft, extract, finish, read_model, shipped_model
from standard.extractive.features import EVIDENCE_FEATURES, SENTENCE_FEATURES
from tests.support.ferry_passages import IDF, found, retrieved

ALL = found("wind", "crew", "refunds", "pets", "history").passages


def answer(question: str, passages: tuple[RetrievedPassage, ...] = ALL) -> str:
    return extract(question, passages, IDF).text


@pytest.mark.parametrize(
    ("question", "holds"),
    [
        ("How strong may the wind be for a ferry to sail?", "40 knots"),
        ("How many officers are on the bridge at night?", "Two officers"),
        ("Who founded the line?", "Maren Holt"),
        ("What do dogs pay?", "free of charge"),
        ("When are refunds for a cancelled sailing paid?", "14 days"),
    ],
)
def test_the_sentence_that_answers_is_found_wherever_its_passage_ranks(question: str, holds: str) -> None:
    assert holds in answer(question)
    assert holds in answer(question, tuple(reversed(ALL)))


def test_a_sentence_that_says_the_same_again_is_left_out() -> None:
    twice = (retrieved("wind"), retrieved("wind", 1))
    assert answer("How strong may the wind be for a ferry to sail?", twice).count("40 knots") == 1


def test_a_table_row_reads_as_text_and_is_quoted_exactly() -> None:
    table = "| Port | Last boat |\n|---|---|\n| St Bran | 20:30 |\n| Garvel | 21:00 |"
    extraction = extract("When does the last boat leave St Bran?", (retrieved("wind", text=table),), {})
    assert "St Bran · 20:30" in extraction.text
    quoted = next(citation for citation in extraction.citations if "20:30" in citation.quote)
    assert quoted.quote == "| St Bran | 20:30 |"


TEXTS = st.lists(
    st.lists(st.sampled_from(["The ", "ferry ", "sails. ", "40 ", "\n", "- ", "| a |\n", "# H\n", "? ", "夜间。"])).map(
        "".join
    )
    | st.text(max_size=80),
    max_size=4,
)


@given(st.text(max_size=60), TEXTS)
def test_any_passages_give_exact_citations_and_a_probability(question: str, texts: list[str]) -> None:
    names = ["wind", "crew", "refunds", "pets"]
    passages = tuple(
        retrieved(name, rank, text=text) for rank, (name, text) in enumerate(zip(names, texts, strict=False))
    )
    extraction = extract(question, passages, IDF)
    assert 0.0 <= extraction.evidence <= 1.0
    assert len(extraction.citations) <= 3
    by_id = {item.passage.passage_id: item.passage.text.raw for item in passages}
    end = 0
    for citation in extraction.citations:
        assert citation.quote == by_id[citation.passage_id][citation.passage_start : citation.passage_end]
        assert citation.answer_start >= end
        assert "\n" not in extraction.text[citation.answer_start : citation.answer_end]
        end = citation.answer_end
    assert end == len(extraction.text)


def test_no_passages_no_answer() -> None:
    assert extract("Why?", (), {}) == NOTHING
    assert extract("Why?", (retrieved("wind", text="\n \n"),), {}) == NOTHING


def test_evidence_is_strong_on_the_subject_and_weak_far_from_it() -> None:
    model = shipped_model()
    near = extract("How strong may the wind be for a ferry to sail?", ALL, IDF).evidence
    distant = tuple(
        RetrievedPassage(item.passage, 0.4, dense_score=0.02, dense_rank=0) for item in found("pets", "crew").passages
    )
    far = extract("Which enzyme cleaves bradykinin in rabbits?", distant, {"enzym": 8.0, "bradykinin": 8.0}).evidence
    assert near > model.abstain > far


def test_comparing_sentences_changes_the_order_of_the_shortlist_alone() -> None:
    drafted = draft("What about money?", ALL, IDF)
    texts = drafted.shortlisted_texts()
    assert len(texts) <= SHORTLIST
    wanted = next(at for at, text in enumerate(texts) if "free of charge" in text)
    similarities = np.zeros(len(texts), dtype=np.float32)
    similarities[wanted] = 1.0
    assert "free of charge" in finish(drafted, similarities).text


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Who signs for it?", AnswerType.PERSON),
        ("When does the last boat leave?", AnswerType.TIME),
        ("what year was it founded", AnswerType.TIME),
        ("How long do you keep a lost telephone?", AnswerType.DURATION),
        ("How many days do I have?", AnswerType.DURATION),
        ("How much does an Islander Card cost?", AnswerType.MONEY),
        ("how much do you pay towards a bed", AnswerType.MONEY),
        ("How many cars fit?", AnswerType.NUMBER),
        ("How high may the waves be?", AnswerType.NUMBER),
        ("Where is the handle?", AnswerType.PLACE),
        ("Why was it stopped?", AnswerType.OTHER),
    ],
)
def test_what_a_question_asks_for(question: str, kind: AnswerType) -> None:
    assert expected_type(question) is kind


@pytest.mark.parametrize(
    ("kind", "sentence", "question", "has"),
    [
        (AnswerType.NUMBER, "It carries 44 cars.", "How many cars fit?", True),
        (AnswerType.NUMBER, "In 2024 it carried cars.", "How many cars in 2024?", False),
        (AnswerType.MONEY, "A card is €85.", "How much is a card?", True),
        (AnswerType.MONEY, "A card is blue.", "How much is a card?", False),
        (AnswerType.TIME, "The last boat is at 20:30.", "When is the last boat?", True),
        (AnswerType.DURATION, "We keep it for ninety days.", "How long?", True),
        (AnswerType.DURATION, "We keep it for days.", "How long?", False),
        (AnswerType.DURATION, "We keep it for 90 days.", "How long?", True),
        (AnswerType.PERSON, "It is Maren Holt.", "Who decides?", True),
        (AnswerType.PERSON, "It is Maren Holt.", "Who is Maren Holt?", False),
        (AnswerType.PLACE, "It is under the seat.", "Where is it?", True),
        (AnswerType.OTHER, "Because 3.", "Why?", False),
    ],
)
def test_what_a_sentence_offers(kind: AnswerType, sentence: str, question: str, has: bool) -> None:
    assert offers(kind, sentence, question) is has


def test_the_shipped_model_is_sound_and_a_damaged_one_is_named() -> None:
    model = shipped_model()
    assert 0.0 < model.abstain <= model.caveat < 1.0
    assert len(model.sentence.weights) == len(model.sentence_dense.weights) == len(SENTENCE_FEATURES)
    assert len(model.evidence.weights) == len(EVIDENCE_FEATURES)
    for damaged in ("", "{}", '{"sentence": {"weights": {}, "bias": 0}}', json.dumps({"sentence": 1})):
        with pytest.raises(Damaged, match=r"weights\.json"):
            read_model(damaged)
