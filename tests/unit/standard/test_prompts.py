"""What the prompt of an answer tells the model, and where notes stand in it."""

from __future__ import annotations

from standard.domain.question import PLAIN, AnswerStyle
from standard.domain.text import UntrustedText
from standard.prompts import answer_messages, answer_task
from standard.sandbox.neutralise import NO_ANSWER
from standard.sandbox.render import Marker, render_notes, tag_passages
from tests.support.memory_retriever import passage
from tests.support.prompt_sections import sections_of

MARKER = Marker("0123456789abcdef0123456789abcdef")
PASSAGES = tag_passages([passage("pier", "The pier closes at nine.")])


def prompt(*, may_hand_over: bool = False) -> tuple[str, str]:
    notes = render_notes({"K": UntrustedText("K1: the pier closes (S1)")}, MARKER)
    system, user = answer_messages(
        UntrustedText("When does the pier close?"), (), PASSAGES, MARKER, notes=notes, may_hand_over=may_hand_over
    )
    return system.content.value, user.content.value


def test_half_an_answer_is_asked_for_and_marked_where_nothing_can_follow() -> None:
    system, user = prompt()
    assert "give that part" in system
    assert system.count(NO_ANSWER) == 2
    assert user.endswith(NO_ANSWER)


def test_half_an_answer_is_not_asked_for_where_a_longer_search_may_follow() -> None:
    system, user = prompt(may_hand_over=True)
    assert "give that part" not in system
    assert "longer search takes over" in system
    assert system.endswith(NO_ANSWER)
    assert user.endswith(NO_ANSWER)


def test_notes_stand_after_the_key_and_before_the_passages() -> None:
    _, user = prompt()
    assert user.startswith(f"The key of this request is {MARKER.key}")
    assert [section.kind for section in sections_of(user)] == ["note", "passage", "question"]


def test_the_system_message_holds_nothing_of_a_request() -> None:
    for may_hand_over in (False, True):
        system, _ = prompt(may_hand_over=may_hand_over)
        assert MARKER.key not in system
        assert "pier?" not in system


def test_a_collections_wishes_stand_in_the_system_message_and_its_language_in_the_place_of_the_questions() -> None:
    style = AnswerStyle("Address the reader as shipmate.", "de-AT")
    for may_hand_over in (False, True):
        system, user = answer_messages(
            UntrustedText("When?"), (), PASSAGES, MARKER, may_hand_over=may_hand_over, style=style
        )
        assert system.content.value.endswith("Address the reader as shipmate.")
        assert "the language whose BCP 47 tag is de-AT" in system.content.value
        assert "language of the question" not in system.content.value
        assert "shipmate" not in user.content.value
        assert NO_ANSWER in system.content.value
    assert answer_task(style=PLAIN) == answer_task()
    assert "Write in the language of the question.\n- Behind each" in answer_task(style=AnswerStyle("Be brief.")).value
