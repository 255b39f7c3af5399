"""What the text model reads: neutral forms, surface features, language, follow-ups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.evaluation.disturbances import other_cases, other_endings, with_typos
from classifier.followup import leans, standalone
from classifier.language import reads_as_english
from classifier.neutral import MAX_LENGTH, folded, neutral
from classifier.surface import NAMES, surface_features
from classifier.training.rows import OTHER_LANGUAGES, own_questions

ANY_TEXT = st.text(max_size=400)
WORDS = st.lists(
    st.sampled_from(
        ["who", "signs", "the", "lease", "that", "Noor's", "team,", "and", "which", "of", "them?", "4", "IF"]
    ),
    max_size=40,
)


@given(ANY_TEXT)
def test_the_neutral_form_of_a_neutral_form_is_itself(text: str) -> None:
    assert neutral(neutral(text)) == neutral(text)
    assert folded(folded(text)) == folded(text)


@given(ANY_TEXT)
def test_the_neutral_form_is_bounded_and_holds_no_line_breaks(text: str) -> None:
    assert len(neutral(text * 50)) <= MAX_LENGTH
    assert not set(neutral(text)) & set("\n\r\t\u2028")


@given(WORDS)
def test_case_and_final_marks_make_no_difference(words: list[str]) -> None:
    question = " ".join(words).rstrip("?,. ")
    plain = surface_features(question)
    for form in (
        question.upper(),
        question.lower(),
        f"{question}?",
        f"{question} !",
        f"  {question}...",
        f"“{question}”",
    ):
        assert np.array_equal(surface_features(form), plain), form


@given(ANY_TEXT)
def test_surface_features_are_finite_bounded_and_repeatable(text: str) -> None:
    features = surface_features(text)
    assert features.shape == (len(NAMES),)
    assert np.isfinite(features).all()
    assert ((features >= 0.0) & (features <= 8.0)).all()
    assert np.array_equal(features, surface_features(text))


def test_a_long_text_is_read_at_its_end_too() -> None:
    background = "The goat ate the form and the vet laughed. " * 3000
    assert neutral(background + "Which of our suppliers was late?").endswith("Which of our suppliers was late")
    assert surface_features(background).shape == (len(NAMES),)


def test_a_described_thing_is_told_from_a_named_one() -> None:
    place = NAMES.index("described")
    assert surface_features("Who built the pump that failed in March?")[place] > 0
    assert surface_features("Who built pump P-201?")[place] == 0


def test_text_without_words_is_no_error() -> None:
    for text in ("", "   ", "???", "\x00", "\ud800", "。。。"):
        assert surface_features(text).shape == (len(NAMES),)


def test_english_is_recognised_in_every_voice_and_other_languages_seldom_pass() -> None:
    rows = own_questions()
    english = [row for row in rows if row.voice not in OTHER_LANGUAGES]
    others = [row for row in rows if row.voice in OTHER_LANGUAGES]
    assert sum(not reads_as_english(row.question) for row in english) <= 0.002 * len(english)
    assert sum(reads_as_english(row.question) for row in others) <= 0.08 * len(others)


@pytest.mark.parametrize(
    "question",
    [
        "lateness codes, L vs U",
        "E41 reset",
        "Müller GmbH invoice 2231",
        "4711",
        "",
        "the Crème de la Mer order, who paid",
    ],
)
def test_fragments_codes_and_foreign_names_count_as_english(question: str) -> None:
    assert reads_as_english(question)


@pytest.mark.parametrize(
    "question",
    [
        "Wer hat die Rechnung freigegeben?",
        "Qui a signé le contrat de maintenance ?",
        "Kto zatwierdził odmowę?",
        "Vem godkände fakturan och när?",
        "Hvem godkendte fakturaen, og hvornår?",
        "誰が承認しましたか",
        "Кто подписал договор?",
        "من وقّع العقد؟",
    ],
)
def test_other_languages_do_not_count_as_english(question: str) -> None:
    assert not reads_as_english(question)


@pytest.mark.parametrize(
    "question",
    [
        "Hoeveel vakantiedagen heb ik dit jaar nog over?",
        "Quantos dias tenho ainda este ano livres?",
        "Unde găsesc formularul de decontare?",
        "Cikos sākas rīta maiņa noliktavā?",
        "Kelintą valandą prasideda rytinė pamaina sandėlyje?",
        "Hi ha algun límit mensual de despeses?",
        "Ku gjendet formulari i ri për shpenzime?",
        "Kanino dapat ipadala ang resibo?",
        "Nitapeleka wapi risiti zangu za hoteli?",
        "Nori bidali behar diot ordainagiria gaur?",
    ],
)
def test_whole_sentences_of_less_common_languages_do_not_count_as_english(question: str) -> None:
    assert not reads_as_english(question)


@pytest.mark.parametrize(
    "question",
    [
        "late invoices north depot march 2024",
        "pump P-201 maintenance interval seal type",
        "Kent pilot, loyalty main finding?",
    ],
)
def test_terse_english_without_function_words_counts_as_english(question: str) -> None:
    assert reads_as_english(question)


def test_a_follow_up_takes_the_earlier_question_along() -> None:
    asked = ["Who is the harbour master at Corvane?"]
    assert standalone("and at Garvel?", asked) == "Who is the harbour master at Corvane. and at Garvel?"
    assert standalone("when did she start?", asked).startswith("Who is the harbour master at Corvane. ")


def test_a_question_that_stands_alone_is_left_alone() -> None:
    asked = ["Who is the harbour master at Corvane?"]
    question = "How many berths does the winter timetable for Port Maddern need on Sundays?"
    assert not leans(question)
    assert standalone(question, asked) == question
    assert standalone("and at Garvel?", []) == "and at Garvel?"


def test_a_follow_up_to_a_follow_up_reaches_back_two_questions() -> None:
    asked = ["Who is the harbour master at Corvane?", "and at Garvel?"]
    assert standalone("since when?", asked) == "Who is the harbour master at Corvane. and at Garvel. since when?"


@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=4))
def test_standing_alone_never_loses_the_question(question: str, asked: list[str]) -> None:
    assert standalone(question, asked).endswith(question)


@given(WORDS)
def test_disturbances_keep_the_question(words: list[str]) -> None:
    question = " ".join(words)
    assert all(form.casefold() == question.casefold() for form in other_cases(question))
    assert all(folded(form) == folded(question) for form in other_endings(question))
    assert with_typos(question) == with_typos(question)
