"""The next hop: what the sources leave open decides, not likeness to the whole question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic.coverage import content_terms
from agentic.next_hop.scoring import (
    MAX_READ,
    TURNS,
    Looks,
    Weights,
    features,
    in_turn,
    next_hops,
    read,
    shipped_weights,
)
from standard.domain.passage import Passage, RetrievedPassage
from tests.support.memory_retriever import passage

QUESTION = "In which county does the harbour pilot of the brig Skua live?"
SKUA = passage("skua", "The brig Skua is guided in by the harbour pilot Ola Brandt.", title="Skua")
SISTER = passage("skua-2", "The brig Skua II is guided in by the harbour pilot of the day.", title="Skua II")
PILOT = passage("ola", "Ola Brandt (born 1960) lives in the county of Nordmark.", title="Ola Brandt (pilot)")
OTHER = passage("fair", "The county fair is held in May.", title="County fair")


def found(*passages: Passage) -> list[RetrievedPassage]:
    return [RetrievedPassage(item, 0.5) for item in passages]


def ranked(question: str, sources: Sequence[Passage], looks: Looks, *, held: frozenset[str] = frozenset()) -> list[str]:
    hops = next_hops(content_terms(question), sources, looks, set(held), shipped_weights())
    return [item.passage.document_id for item in hops]


def columns(candidate: Passage, *others: Passage, sources: Sequence[Passage] = (SKUA,)) -> dict[str, float]:
    """The first candidate's features by name, with nothing in any look."""
    candidates = found(candidate, *others)
    rows = features(read(content_terms(QUESTION), sources, candidates), Looks([], [], []), candidates)
    return dict(zip([field.name for field in fields(Weights)], rows[0].tolist(), strict=True))


def test_what_the_source_names_and_leaves_open_goes_before_its_own_sibling() -> None:
    looks = Looks(found(SISTER, OTHER), found(PILOT), found(SISTER, OTHER, PILOT))
    assert ranked(QUESTION, [SKUA], looks, held=frozenset({"skua"}))[0] == "ola"


def test_a_sibling_adds_nothing_and_a_bridge_what_is_open() -> None:
    sibling, bridge = columns(SISTER), columns(PILOT)
    assert sibling["gain"] == sibling["new"] == sibling["named"] == 0.0
    assert bridge["gain"] > 0.0
    assert bridge["new"] > 0.0
    assert bridge["named"] > bridge["gain"]  # together with what the source holds


def test_a_title_counts_without_its_bracket_and_as_whole_words() -> None:
    assert columns(PILOT)["named"] > 0.0
    assert columns(replace(PILOT, title=replace(PILOT.title, raw="Ola Brand")))["named"] == 0.0


def test_a_title_that_many_candidates_name_tells_less() -> None:
    echo = passage("echo", "A street is named after Ola Brandt.", title="Streets")
    alone, shared = columns(PILOT), columns(PILOT, echo)
    assert shared["named"] == pytest.approx(alone["named"] / 2)


def test_gain_is_over_the_source_that_holds_most() -> None:
    near = passage("nordmark", "The county of Nordmark: where the harbour pilot of the brig Skua came to live.")
    assert columns(PILOT, sources=(SKUA, near))["gain"] == 0.0


def test_documents_that_are_held_are_no_next_hop_and_a_passage_comes_once() -> None:
    looks = Looks(found(SKUA, PILOT), found(PILOT, OTHER), found(PILOT))
    assert sorted(ranked(QUESTION, [SKUA], looks, held=frozenset({"skua"}))) == ["fair", "ola"]


def test_what_the_one_before_holds_counts_no_more_for_the_next() -> None:
    adds = np.array([[3.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    assert in_turn(adds.sum(axis=1) + np.array([0.2, 0.1, 0.0]), adds, ["a", "b", "c"]) == [0, 2, 1]


def test_a_second_passage_of_a_document_waits_behind_other_documents() -> None:
    assert in_turn(np.array([3.0, 2.0, 1.0]), np.zeros((3, 1)), ["a", "a", "b"]) == [0, 2, 1]


def test_nothing_found_is_nothing_ranked() -> None:
    assert ranked(QUESTION, [SKUA], Looks([], [], [])) == []


def test_a_question_without_words_of_its_own_and_no_sources_go_by_rank() -> None:
    assert ranked("Who is it?", [], Looks([], found(OTHER, PILOT), [])) == ["fair", "ola"]


def test_text_beyond_what_is_read_counts_for_nothing() -> None:
    long = passage("long", "x " * MAX_READ + "county", title="Long")
    assert columns(long)["gain"] == 0.0


def test_shipped_weights_favour_every_feature_and_are_finite() -> None:
    assert all(math.isfinite(value) and value > 0.0 for value in astuple(shipped_weights()))


def test_a_weight_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        replace(shipped_weights(), gain=math.nan)


_TEXT = st.text(alphabet=st.sampled_from("abcÄß日 .()-'\x00"), max_size=60)
_PASSAGES = st.lists(st.tuples(_TEXT, _TEXT), max_size=6).map(
    lambda pairs: [passage(f"d{at}", text, title=title) for at, (title, text) in enumerate(pairs)]
)


@given(question=_TEXT, sources=_PASSAGES, candidates=_PASSAGES)
def test_features_of_any_text_are_shares(question: str, sources: list[Passage], candidates: list[Passage]) -> None:
    looks = Looks(found(*candidates), found(*candidates[1:]), found(*candidates[2:]))
    rows = features(read(content_terms(question), sources, found(*candidates)), looks, found(*candidates))
    assert rows.shape == (len(candidates), len(fields(Weights)))
    assert np.isfinite(rows).all()
    assert (rows >= 0.0).all()
    assert (rows <= 1.0 + 1e-9).all()


@given(question=_TEXT, sources=_PASSAGES, candidates=_PASSAGES, held=st.sets(st.sampled_from(["d0", "d1", "d2"])))
def test_every_candidate_outside_what_is_held_is_ranked_once(
    question: str, sources: list[Passage], candidates: list[Passage], held: set[str]
) -> None:
    looks = Looks(found(*candidates), found(*candidates), [])
    names = ranked(question, sources, looks, held=frozenset(held))
    assert sorted(names) == sorted({item.document_id for item in candidates} - held)


@given(st.lists(st.tuples(st.floats(-5, 5), st.sampled_from("abcdefghij")), max_size=2 * TURNS))
def test_taking_in_turn_where_nothing_is_shared_is_the_order_of_scores(rows: list[tuple[float, str]]) -> None:
    scores = np.array([score for score, _ in rows])
    order = in_turn(scores, np.zeros((len(rows), 2)), [document for _, document in rows])
    assert sorted(order) == list(range(len(rows)))
    heads = list({rows[row][1]: None for row in sorted(range(len(rows)), key=lambda row: (-scores[row], row))})
    assert [rows[row][1] for row in order[: min(TURNS, len(heads))]] == heads[:TURNS]


@given(words=st.lists(st.sampled_from(["county", "live", "pilot", "tide", "brig"]), max_size=6))
def test_a_candidate_that_holds_more_of_what_is_open_never_gains_less(words: list[str]) -> None:
    less = passage("less", " ".join(words), title="Less")
    more = passage("more", " ".join([*words, "county"]), title="More")
    assert columns(more)["gain"] >= columns(less)["gain"]
    assert columns(more)["new"] >= columns(less)["new"]
