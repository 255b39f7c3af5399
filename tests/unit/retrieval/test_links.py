"""What links are looked up, and how they score."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from standard.domain.passage import Passage
from standard.domain.text import UntrustedText
from standard.retrieval.links import IN_TITLE, MAX_NAMES, MAX_SOURCES, MAX_SPANS, MENTION, TITLE, link_score, names_in

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def passage(text: str, title: str = "") -> Passage:
    return Passage("d#0", "d", UntrustedText(title), "", UntrustedText(text), 0, "hash")


def test_names_carry_the_rank_of_the_first_passage_that_holds_them() -> None:
    names = names_in(
        [passage("She met Sunniva Blake."), passage("Then Sunniva Blake saw Port Maddern.")], "Who is Ada?"
    )
    ranks = dict(zip(names.names, names.name_ranks, strict=True))
    assert (ranks["Sunniva Blake"], ranks["Port Maddern"]) == (0, 1)
    spans = dict(zip(names.spans, names.span_ranks, strict=True))
    assert (spans["ada"], spans["sunniva blake"], spans["port maddern"]) == (0, 0, 1)


def test_only_the_first_passages_are_read_and_lists_are_bounded() -> None:
    many = [passage(" ".join(f"Name{n}x{m}" for m in range(400))) for n in range(MAX_SOURCES + 5)]
    names = names_in(many, "")
    assert len(names.spans) == len(names.span_ranks) <= MAX_SPANS
    assert len(names.names) == len(names.name_ranks) <= MAX_NAMES
    assert max(names.span_ranks) < MAX_SOURCES


@patient
@given(st.floats(-1.0, 1.0), st.sampled_from([TITLE, IN_TITLE, MENTION]), st.integers(0, 9))
def test_scores_are_fractions_that_fall_with_the_rank(similarity: float, strength: float, rank: int) -> None:
    score = link_score(similarity, strength, rank)
    assert 0.0 <= score <= 1.0
    assert link_score(similarity, strength, rank + 1) <= score


def test_a_title_is_a_stronger_link_than_a_mention() -> None:
    assert link_score(0.4, TITLE, 0) > link_score(0.4, IN_TITLE, 0) > link_score(0.4, MENTION, 0)
