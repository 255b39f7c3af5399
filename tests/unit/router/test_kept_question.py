"""A question survives the journal where consent keeps its text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.journal.question import kept_question, may_see, question_of
from standard.domain.errors import FailedPrecondition
from standard.domain.filter import And, Eq, Filter, In, Range, Scalar
from standard.domain.passage import Scope
from standard.domain.question import Budget, Question, Route, Turn
from standard.domain.text import UntrustedText

SCALARS: st.SearchStrategy[Scalar] = st.one_of(
    st.text(max_size=5), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)
)
KEYS = st.text(min_size=1, max_size=5)
BOUNDS = st.one_of(st.none(), st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False))
CONDITIONS: st.SearchStrategy[Filter] = st.recursive(
    st.one_of(
        st.builds(Eq, KEYS, SCALARS),
        st.builds(In, KEYS, st.lists(SCALARS, min_size=1, max_size=3).map(tuple)),
        st.builds(Range, KEYS, BOUNDS, BOUNDS),
    ),
    lambda inner: st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=5,
)
TEXTS = st.text(min_size=1, max_size=20).map(UntrustedText)
QUESTIONS = st.builds(
    Question,
    text=TEXTS,
    scope=st.builds(
        Scope,
        tenant=st.just("acme"),
        collection=KEYS,
        filter=st.one_of(st.none(), CONDITIONS),
        groups=st.frozensets(KEYS, max_size=3),
        narrowed=st.booleans(),
    ),
    history=st.lists(st.builds(Turn, st.sampled_from(["user", "assistant"]), TEXTS), max_size=3).map(tuple),
    route=st.sampled_from([None, *Route]),
    threshold=st.one_of(st.none(), st.floats(0, 1)),
    top_k=st.integers(1, 100),
    budget=st.builds(Budget, st.integers(1, 20), st.none(), st.floats(1, 100), st.just(0.0)),
    session_id=st.text(max_size=5),
    request_id=st.just("r1"),
    dry_run=st.booleans(),
    probe=st.booleans(),
)


@given(QUESTIONS)
def test_what_is_kept_with_its_text_is_the_question_again(question: Question) -> None:
    values = json.loads(json.dumps(kept_question(question, "text")))
    assert question_of(values, "acme", "r1", None) == question


@given(QUESTIONS, st.sampled_from(["hash", "nothing"]))
def test_without_its_text_there_is_no_question_to_go_on_with(question: Question, consent: str) -> None:
    kept = kept_question(question, "hash" if consent == "hash" else "nothing")
    with pytest.raises(FailedPrecondition):
        question_of(kept, "acme", "r1", None)


def test_what_another_release_kept_is_refused_and_not_guessed_at() -> None:
    with pytest.raises(FailedPrecondition, match="another release"):
        question_of({"top_k": 5, "question": "where?"}, "acme", "r1", None)


def test_only_callers_with_the_runs_groups_may_see_it() -> None:
    values = kept_question(Question(UntrustedText("q"), Scope(groups=frozenset({"crew"}))), "text")
    assert may_see(values, frozenset({"crew", "office"}))
    assert not may_see(values, frozenset({"office"}))
    assert may_see(None, frozenset())


@pytest.mark.parametrize("narrowed", [True, False])
def test_who_is_held_to_collections_sees_what_such_callers_asked(narrowed: bool) -> None:
    values = kept_question(Question(UntrustedText("q"), Scope(collection="wharf", narrowed=narrowed)), "hash")
    assert may_see(values, frozenset())
    assert may_see(values, frozenset(), frozenset({"wharf"})) is narrowed
    assert not may_see(values, frozenset(), frozenset({"office"}))
