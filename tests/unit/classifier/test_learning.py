"""Labels, adaptation, measures, shares, folds and drift."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.artifact import SHIPPED, read_artifact
from classifier.calibration import expected_calibration_error, expit, fit_platt
from classifier.drift import bin_edges, population_stability, shares
from classifier.errors import BadLabels
from classifier.evaluation.shares import complete_share, gap_closed, oracle_share, random_share
from classifier.evaluation.text import length_matched
from classifier.labels import read_labels
from classifier.measures import auc, bootstrap, threshold_for_false_positives
from classifier.training.adapt import adapt
from classifier.training.decision import collection_of, set_folds
from classifier.training.folds import group_folds
from classifier.training.own import train_from_labels


def written(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("\n".join(json.dumps({"question": q, "label": label}) for q, label in rows), encoding="utf-8")
    return path


def test_labels_are_read_row_by_row_and_what_is_wrong_is_told(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    good = [json.dumps({"question": f"question {n}", "label": "simple" if n % 2 else "agentic"}) for n in range(20)]
    twice = [
        json.dumps({"question": "Question 3?", "label": "complex"}),
        json.dumps({"question": "question 4", "label": "complex"}),
    ]
    bad = ["{", json.dumps({"question": "x", "label": "perhaps"}), json.dumps({"label": "simple"}), "7"]
    path.write_bytes("\n".join([*good, *twice, *bad]).encode() + b"\n\xff\xfe\n")
    labels = read_labels(path)
    assert labels.conflicts == ("question 3",)
    assert labels.repeats == 2
    assert len(labels.questions) == 19
    assert labels.refused_count == 5
    assert [refused.line for refused in labels.refused] == [23, 24, 25, 26, 27]


def test_csv_with_a_byte_order_mark_and_quotes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes('\ufeffquestion,label\n"who, and when?",complex\nlate fee,standard\n'.encode())
    labels = read_labels(path)
    assert labels.questions == ("who, and when?", "late fee")
    assert labels.complex == (True, False)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"question,label\n", b"\x00\xff"])
def test_a_file_without_labels_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(content)
    with pytest.raises(BadLabels):
        read_labels(path)


def test_of_very_many_rows_a_sample_is_kept(tmp_path: Path) -> None:
    rows = [(f"question number {n}", "simple" if n % 2 else "complex") for n in range(3000)]
    labels = read_labels(written(tmp_path / "many.jsonl", rows), most=100)
    assert labels.read == 3000
    assert labels.sampled
    assert len(labels.questions) == 100


def test_one_kind_of_label_alone_cannot_be_learned_from(tmp_path: Path) -> None:
    path = written(tmp_path / "one.jsonl", [(f"question {n}", "simple") for n in range(50)])
    with pytest.raises(BadLabels, match="0 complex"):
        train_from_labels(path, tmp_path / "out")


def test_labels_that_say_something_make_a_better_model_that_loads(tmp_path: Path) -> None:
    rows = [(f"invoice {n} of the Garvel depot", "complex") for n in range(40)]
    rows += [(f"opening hours of branch {n} on Sunday", "simple") for n in range(40)]
    report = train_from_labels(written(tmp_path / "own.jsonl", rows), tmp_path / "out")
    assert report["adapted"]
    assert report["after"]["log_loss"] < report["before"]["log_loss"]
    adapted = read_artifact(tmp_path / "out")
    assert adapted.version == report["model_version"]
    assert "before" in adapted.manifest


def test_labels_without_sense_leave_the_model_as_it_was(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [(f"question {n} {rng.integers(9999)}", "complex" if n % 2 else "simple") for n in range(60)]
    report = train_from_labels(written(tmp_path / "noise.jsonl", rows), tmp_path / "out")
    if not report["adapted"]:
        assert read_artifact(tmp_path / "out").version == read_artifact(SHIPPED).version
        assert any("left as it was" in warning for warning in report["warnings"])
    assert report["after"]["log_loss"] < 0.75


def test_adaptation_is_judged_on_rows_it_did_not_see() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(120, 60))
    labels = rng.random(120) < 0.5
    outcome = adapt(np.zeros(120), noise, labels)
    assert outcome.after.auc is not None
    assert outcome.after.auc < 0.7


@given(st.lists(st.tuples(st.floats(-9, 9), st.booleans()), min_size=2, max_size=60))
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[float, bool]]) -> None:
    scores, labels = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[labels] for b in scores[~labels]]
    found = auc(scores, labels)
    if pairs:
        assert found == pytest.approx(float(np.mean(pairs)))
    else:
        assert found is None


@given(st.lists(st.tuples(st.floats(-9, 9), st.booleans()), min_size=1, max_size=60), st.floats(0.0, 1.0))
def test_routing_lies_between_nothing_and_the_oracle(rows: list[tuple[float, bool]], share: float) -> None:
    scores, lacking = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    value = complete_share(scores, lacking, share)
    assert complete_share(scores, lacking, 0.0) - 1e-9 <= value <= oracle_share(lacking, share) + 1e-9
    assert complete_share(np.zeros(len(rows)), lacking, share) == pytest.approx(random_share(lacking, share))
    assert complete_share(lacking.astype(float), lacking, share) == pytest.approx(oracle_share(lacking, share))


def test_the_oracle_closes_the_whole_gap_and_chance_none_of_it() -> None:
    lacking = np.array([True, False, True, False, False, False])
    assert gap_closed(lacking.astype(float), lacking, 0.35) == pytest.approx(1.0)
    assert gap_closed(np.zeros(6), lacking, 0.35) == pytest.approx(0.0)
    assert gap_closed(np.zeros(6), np.zeros(6, dtype=bool), 0.35) is None


@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=5, max_size=80), st.floats(0.0, 0.5))
def test_the_threshold_keeps_false_positives_within_the_rate(rows: list[tuple[float, bool]], rate: float) -> None:
    scores, labels = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    threshold = threshold_for_false_positives(scores, labels, rate)
    if (~labels).any():
        assert (scores[~labels] >= threshold).mean() <= rate + 1e-12


def test_calibration_mends_scores_that_are_too_bold() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=4000)
    labels = rng.random(4000) < expit(truth)
    platt = fit_platt(4.0 * truth, labels)
    assert platt.slope == pytest.approx(0.25, abs=0.03)
    assert expected_calibration_error(expit(platt.slope * 4.0 * truth + platt.shift), labels) < 0.03
    assert fit_platt(-truth, labels).slope == 0.0


def test_bootstrap_draws_whole_groups_and_repeats() -> None:
    values = np.repeat(np.arange(5.0), 20)
    groups = np.repeat(np.arange(5), 20)
    wide = bootstrap(lambda rows: float(values[rows].mean()), 100, groups=groups, rounds=300)
    narrow = bootstrap(lambda rows: float(values[rows].mean()), 100, rounds=300)
    assert wide == bootstrap(lambda rows: float(values[rows].mean()), 100, groups=groups, rounds=300)
    assert wide.low is not None and wide.high is not None and narrow.low is not None and narrow.high is not None  # noqa: PT018
    assert wide.high - wide.low > narrow.high - narrow.low


def test_folds_never_split_a_domain_or_a_collection() -> None:
    groups = [f"g{n % 7}" for n in range(100)]
    seen = []
    for training, held in group_folds(groups, 3):
        assert not {groups[row] for row in training} & {groups[row] for row in held}
        seen += held.tolist()
    assert sorted(seen) == list(range(100))
    sets = np.array(["musique", "musique-steps", "popqa", "demo"])
    assert collection_of(sets).tolist() == ["musique", "musique", "popqa", "demo"]
    assert [held.tolist() for _, held in set_folds(sets)] == [[3], [0, 1], [2]]


def test_length_matching_takes_as_many_of_either_label() -> None:
    lengths = np.array([3, 3, 3, 5, 5, 9])
    labels = np.array([True, False, False, True, False, True])
    kept = length_matched(lengths, labels)
    assert labels[kept].sum() * 2 == len(kept) == 4


def test_drift_is_nothing_for_the_same_traffic_and_large_for_another() -> None:
    rng = np.random.default_rng(0)
    reference = rng.normal(size=5000)
    edges = bin_edges(reference)
    same = population_stability(shares(reference, edges), shares(rng.normal(size=5000), edges))
    moved = population_stability(shares(reference, edges), shares(rng.normal(1.0, size=5000), edges))
    assert same < 0.02
    assert moved > 0.25
