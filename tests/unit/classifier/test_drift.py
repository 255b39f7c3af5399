"""Drift: the same traffic stays still, another kind is seen, and a window is bounded whatever comes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classifier.artifact import SHIPPED, Artifact, read_artifact
from classifier.drift import BINS, LEAST, DriftWindow, Reference, bin_edges, level, reference_of, shares
from classifier.errors import ArtifactDamaged
from classifier.training.reference import reference_arrays
from classifier.training.ship import rows_from


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return read_artifact(SHIPPED)


@pytest.fixture(scope="module")
def reference(artifact: Artifact) -> Reference:
    found = reference_of(artifact)
    assert found is not None
    return found


def test_the_shipped_reference_is_of_the_shipped_rows(artifact: Artifact, reference: Reference) -> None:
    rows = rows_from(dict(artifact.arrays), artifact.manifest["rows"]["sets"])
    held_out = np.random.default_rng(0).normal(size=len(rows))
    arrays = reference_arrays(rows, held_out, held_out)
    assert np.allclose(arrays["reference_directions"], reference.directions, atol=1e-4)
    assert np.allclose(arrays["reference_places"], reference.places, atol=1e-4)
    assert np.allclose(reference.directions @ reference.directions.T, np.eye(len(reference.directions)), atol=1e-5)


def test_training_traffic_stays_still_and_one_kind_of_it_alone_is_seen(
    artifact: Artifact, reference: Reference
) -> None:
    rows = rows_from(dict(artifact.arrays), artifact.manifest["rows"]["sets"])
    chance = np.random.default_rng(1)
    weights = np.array([1.0 / max(1, (rows.sets == name).sum() / 130) for name in rows.sets.tolist()])
    drawn = chance.choice(len(rows), 1500, p=weights / weights.sum())
    # Log-odds drawn from the reference itself: within a random bin.
    inside = np.concatenate([[reference.decision[0] - 1], reference.decision])[chance.integers(0, BINS, 1500)] + 1e-6
    same = DriftWindow(reference)
    same.add(inside.tolist(), [False] * 1500, rows.vectors[drawn])
    still = same.stability()
    assert still.probability is not None
    assert still.embedding is not None
    assert max(still.probability, still.embedding) < 0.1
    assert level(still.embedding) == "stable"

    films = np.flatnonzero(rows.sets == "popqa")
    other = DriftWindow(reference)
    other.add([-6.0] * len(films), [False] * len(films), rows.vectors[films])
    moved = other.stability()
    assert moved.probability is not None
    assert moved.embedding is not None
    assert min(moved.probability, moved.embedding) > 0.25
    assert level(moved.probability) == "look closely"


def test_too_few_questions_give_no_figure(reference: Reference) -> None:
    window = DriftWindow(reference)
    vectors = np.zeros((LEAST - 1, reference.directions.shape[1]), dtype=np.float32)
    window.add([0.0] * len(vectors), [False] * len(vectors), vectors)
    assert window.stability().probability is None
    assert window.stability().embedding is None
    assert level(None) == "unknown"


def test_the_text_is_compared_with_the_texts_reference(reference: Reference) -> None:
    middle = float(np.median(reference.text))
    bins = reference.logit_bins(np.array([middle, middle, np.nan]), by_text=np.array([True, False, True]))
    assert bins[0] == BINS // 2
    assert bins[2] == 255
    assert bins[1] == np.searchsorted(reference.decision, middle, side="right")


def test_another_embedder_has_no_figure_for_vectors(reference: Reference) -> None:
    window = DriftWindow(reference, vectors=False)
    window.add([0.0] * 300, [True] * 300, np.zeros((300, 7), dtype=np.float32))
    found = window.stability()
    assert found.probability is not None
    assert found.embedding is None
    assert found.vectors == 0


@settings(deadline=None)
@given(st.lists(st.lists(st.none() | st.floats(allow_nan=True), max_size=30), max_size=8), st.integers(1, 40))
def test_a_window_holds_the_last_questions_whatever_they_are(parts: list[list[float | None]], size: int) -> None:
    edges = np.linspace(-1.0, 1.0, BINS - 1)
    reference = Reference(edges, edges, np.eye(2, 3, dtype=np.float32), np.stack([edges, edges]))
    window = DriftWindow(reference, size=size)
    everything: list[float | None] = []
    for part in parts:
        vectors = np.full((len(part), 3), np.nan if len(part) % 2 else 0.5, dtype=np.float32)
        window.add(part, [False] * len(part), vectors)
        everything += part
    last = everything[-size:]
    found = window.stability()
    assert found.logits == sum(value is not None and np.isfinite(value) for value in last)
    assert found.vectors <= min(size, len(everything))


def test_weighted_edges_cut_into_bins_of_equal_weight() -> None:
    chance = np.random.default_rng(2)
    values = chance.normal(size=4000)
    weights = chance.uniform(0.1, 3.0, size=4000)
    edges = bin_edges(values, weights)
    bins = np.searchsorted(edges, values, side="right")
    assert np.allclose(np.bincount(bins, weights) / weights.sum(), 1.0 / BINS, atol=0.003)
    assert np.allclose(shares(values, bin_edges(values)), 1.0 / BINS, atol=0.001)


def test_a_garbled_reference_is_refused_and_a_missing_one_is_none(artifact: Artifact) -> None:
    without = {name: array for name, array in artifact.arrays.items() if not name.startswith("reference_")}
    assert reference_of(replace(artifact, arrays=without)) is None
    for name, array in (("reference_decision", np.zeros(3)), ("reference_directions", np.zeros((8, 5)))):
        with pytest.raises(ArtifactDamaged, match="reference"):
            reference_of(replace(artifact, folder=Path("model"), arrays=dict(artifact.arrays) | {name: array}))
