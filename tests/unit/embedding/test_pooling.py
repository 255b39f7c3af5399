"""Cutting into windows, grouping into passes, and means over sentences."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from standard.embedding.longtext import pieces, weighted_means
from standard.embedding.pooling import groups, sentence_means, windows

CLS, SEP = 101, 102


@given(st.lists(st.integers(1000, 9999), max_size=900), st.integers(3, 256))
def test_windows_hold_every_token_once_in_order_and_fit(inner: list[int], limit: int) -> None:
    cut = windows([CLS, *inner, SEP], limit)
    assert [token for window in cut for token in window[1:-1]] == inner
    assert all(len(window) <= limit and (window[0], window[-1]) == (CLS, SEP) for window in cut)


@given(st.lists(st.integers(1000, 9999), min_size=1, max_size=900), st.integers(3, 256))
def test_windows_are_as_few_as_can_be_and_nearly_equal(inner: list[int], limit: int) -> None:
    sizes = [len(window) - 2 for window in windows([CLS, *inner, SEP], limit)]
    assert len(sizes) == -(-len(inner) // (limit - 2))
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 512))
def test_groups_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    made = groups(lengths, budget)
    assert sorted(row for group in made for row in group) == list(range(len(lengths)))
    for group in made:
        assert len(group) == 1 or len(group) * max(lengths[row] for row in group) <= budget


def test_groups_put_rows_of_like_length_together() -> None:
    assert groups([200, 10, 12, 199, 11], 256) == [[1, 4, 2], [3], [0]]


def test_a_sentence_is_the_mean_of_the_tokens_that_begin_in_it() -> None:
    tokens = np.eye(4, dtype=np.float32)
    means = sentence_means(tokens, [(0, 3), (4, 7), (7, 8), (9, 12)], [(0, 8), (9, 12)], tokens[0])
    third = 1 / np.sqrt(3)
    assert means == pytest.approx(np.array([[third, third, third, 0], [0, 0, 0, 1]]), abs=1e-6)


def test_a_sentence_in_which_no_token_begins_gets_the_vector_of_the_passage() -> None:
    passage = np.array([3, 4], np.float32)
    for tokens, offsets in ((np.eye(2, dtype=np.float32), [(0, 5), (9, 12)]), (np.empty((0, 2), np.float32), [])):
        assert sentence_means(tokens, offsets, [(6, 8)], passage) == pytest.approx(np.array([[0.6, 0.8]]))


@given(st.data())
def test_sentence_means_match_a_plain_loop(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=30))
    offsets, at = [], 0
    for gap, width in gaps:
        offsets.append((at + gap, at + gap + width))
        at += gap + width
    edges = sorted(data.draw(st.sets(st.integers(0, at), min_size=2, max_size=6)))
    spans = list(pairwise(edges))
    tokens = np.random.default_rng(len(offsets)).normal(size=(len(offsets), 8)).astype(np.float32) + 1
    means = sentence_means(tokens, offsets, spans, tokens.mean(axis=0))
    for (start, end), mean in zip(spans, means, strict=True):
        own = [token for token, (begin, _) in zip(tokens, offsets, strict=True) if start <= begin < end]
        expected = np.mean(own or list(tokens), axis=0)
        assert mean == pytest.approx(expected / np.linalg.norm(expected), abs=1e-5)


@given(st.text(max_size=400), st.integers(1, 20))
def test_pieces_of_a_long_text_fit_and_lose_nothing_but_blanks(text: str, limit: int) -> None:
    cut = pieces(text, len, limit)
    assert all(len(piece) == tokens <= limit and piece.strip() for piece, tokens in cut)
    assert "".join("".join(piece for piece, _ in cut).split()) == "".join(text.split())


def test_a_long_text_is_cut_at_spaces_where_there_are_some() -> None:
    assert [piece for piece, _ in pieces("one two three four", len, 9)] == ["one two", " three", " four"]


def test_a_character_that_counts_more_than_the_limit_is_kept_whole() -> None:
    assert pieces("é", lambda text: 4 * len(text), 3) == [("é", 4)]


def test_weighted_means_weigh_rows_by_their_tokens_and_sort_them_to_their_owners() -> None:
    rows = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
    means = weighted_means(rows, [3, 4, 9], [0, 0, 1], 2)
    assert means == pytest.approx(np.array([[0.6, 0.8], [0, 1]]))
