"""What is left of a draft once its unsupported sentences are gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentic.critique import DROPPED, claim_spans, emit_whole, without
from standard.domain.answer import AnswerSource, Citation, Outcome, StopReason
from standard.domain.event import CitationMade, EventBody, TokenEmitted
from standard.domain.outcome import RouteResult
from standard.sentences import sentence_spans

SENTENCES = ("The pier closes at nine.", "Dogs travel free.", "Anna Berg was born in 1970.", "The fee is 12 euros.")


def cite(start: int, end: int) -> Citation:
    return Citation(f"d#{start}", "d", "t", "u", "quote", start, end, 0, 5)


def draft(sentences: list[str]) -> RouteResult:
    text = " ".join(sentences)
    spans = sentence_spans(text)
    citations = tuple(cite(*span) for span in spans)
    return RouteResult(text, AnswerSource.GENERATED, Outcome.ANSWERED, StopReason.SUFFICIENT, citations)


@given(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=8), st.data())
def test_what_stays_keeps_its_words_and_its_citations(sentences: list[str], data: st.DataObject) -> None:
    whole = draft(sentences)
    spans = sentence_spans(whole.text)
    dropped = data.draw(st.lists(st.sampled_from(spans), unique=True))
    left = without(whole, dropped)
    kept = [span for span in spans if span not in dropped]
    assert left.text.split() == " ".join(whole.text[slice(*span)] for span in kept).split()
    assert [left.text[c.answer_start : c.answer_end] for c in left.citations] == [whole.text[slice(*s)] for s in kept]
    assert (DROPPED in left.notices) == bool(dropped)
    assert (left.outcome is Outcome.ANSWERED) == (not dropped)


@given(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=8))
async def test_a_withheld_answer_is_emitted_whole_with_citations_behind_their_text(sentences: list[str]) -> None:
    whole = draft(sentences)
    events: list[EventBody] = []

    async def emit(body: EventBody) -> None:
        events.append(body)

    await emit_whole(whole, emit)
    assert "".join(event.text for event in events if isinstance(event, TokenEmitted)) == whole.text
    shown = 0
    for event in events:
        if isinstance(event, TokenEmitted):
            shown += len(event.text)
        elif isinstance(event, CitationMade):
            assert event.citation.answer_end <= shown


def claims(text: str, *cited: str) -> list[str]:
    """The claims of a text in which these stretches are cited."""
    citations = tuple(cite(text.index(part), text.index(part) + len(part)) for part in cited)
    made = RouteResult(text, AnswerSource.GENERATED, Outcome.ANSWERED, StopReason.SUFFICIENT, citations)
    return [text[slice(*span)] for span in claim_spans(made)]


def test_a_cited_number_is_a_claim_of_its_own() -> None:
    text = "38. She is the relief ship."
    assert claims(text) == [text]
    assert claims(text, "38") == ["38.", "She is the relief ship."]


def test_what_is_cited_within_a_sentence_does_not_split_it() -> None:
    text = "Anna Berg, the captain, was born in 1970."
    assert claims(text, "Anna Berg", "Anna Berg, the captain, was born in 1970") == [text]


@given(st.text(alphabet="ab1. \n!?)", max_size=60), st.sets(st.integers(0, 60), max_size=6))
def test_claims_hold_every_sign_once(text: str, ends: set[int]) -> None:
    citations = tuple(cite(0, end) for end in ends if end <= len(text))
    made = RouteResult(text, AnswerSource.GENERATED, Outcome.ANSWERED, StopReason.SUFFICIENT, citations)
    spans = claim_spans(made)
    assert "".join("".join(text[slice(*span)].split()) for span in spans) == "".join(text.split())
    assert all(start < end for start, end in spans)
    assert spans == sorted(spans)
