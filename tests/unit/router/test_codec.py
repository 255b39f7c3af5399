"""Events survive the journal, and consent covers every text in them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from router.grpc.convert import event_message
from router.journal.codec import EventCodec, redact
from standard.domain import event as events
from standard.domain.answer import Answer, AnswerSource, Citation, Decision, DecisionReason, Outcome, StopReason
from standard.domain.event import Event, EventBody
from standard.domain.question import Route

SECRET = "where-is-the-spare-pump"
DECISION = Decision(Route.STANDARD, DecisionReason.EVIDENCE, 0.25, 0.5, 0.3, 0.2, "v1")
CITATION = Citation("d#0", "d", "Title", "file:d", SECRET, 0, 3, 5, 5 + len(SECRET))
ANSWER = Answer(
    "r1",
    SECRET,
    AnswerSource.GENERATED,
    Outcome.ANSWERED,
    StopReason.SUFFICIENT,
    Route.STANDARD,
    DECISION,
    (CITATION,),
    SECRET,
)
BODIES: list[EventBody] = [
    events.DecisionMade(DECISION),
    events.PlanMade((events.SubQuestion("a", SECRET), events.SubQuestion("b", SECRET, ("a",)))),
    events.QueryIssued(1, "search", SECRET, SECRET),
    events.PassagesFound(1, (events.PassageFound("d#0", "d", "Title", "", 0.5, SECRET),), 2),
    events.SufficiencyJudged(1, 0.75, True, (SECRET,), (SECRET,), (SECRET,), SECRET, 1234),
    events.GuardTripped(2, "query_similarity", "search", SECRET, True, 1234, SECRET),
    events.ContextCompressed(3, 1000, 200, ("d#0",), 1234),
    events.Escalated(Route.STANDARD, Route.AGENTIC, "insufficient"),
    events.ClarificationAsked(SECRET, (SECRET,)),
    events.TokenEmitted(SECRET),
    events.CitationMade(0, CITATION),
    events.Degraded("llm", "no model"),
    events.OutputBlocked("canary"),
    events.Completed(ANSWER),
]
bodies = st.sampled_from(BODIES)
CODEC = EventCodec()


@given(bodies)
def test_a_body_comes_back_as_it_was(body: EventBody) -> None:
    assert CODEC.decode(CODEC.kind(body), json.loads(CODEC.encode(body))) == body


@given(bodies, st.sampled_from(["hash", "nothing"]))
def test_without_consent_no_text_of_the_question_or_answer_is_kept(body: EventBody, consent: str) -> None:
    assert SECRET not in CODEC.encode(redact(body, "hash" if consent == "hash" else "nothing"))


@given(bodies)
def test_with_consent_nothing_is_lost(body: EventBody) -> None:
    assert redact(body, "text") is body


def test_every_body_has_a_place_on_the_wire_under_its_own_name() -> None:
    for body in BODIES:
        assert event_message(Event(1, body, "line")).WhichOneof("body") == CODEC.kind(body)


@given(st.text())
def test_any_text_can_be_sent(text: str) -> None:
    message = event_message(Event(1, events.TokenEmitted(text)))
    assert message.FromString(message.SerializeToString()) == message


def test_lone_surrogates_do_not_break_the_wire() -> None:
    assert event_message(Event(1, events.TokenEmitted("a\ud800b"))).token.text == "a?b"
