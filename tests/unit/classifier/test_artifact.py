"""Artifacts: what is damaged or foreign is refused with the file and the way out named; what ships loads and serves."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from classifier.artifact import MANIFEST, SHIPPED, Embedder, read_artifact, require_embedder, write_artifact
from classifier.decision_model import decision_model_of
from classifier.encoder import text_encoder_of
from classifier.errors import ArtifactDamaged, BadVector, EmbedderMismatch
from classifier.evidence.names import NAMES as EVIDENCE
from classifier.surface import NAMES as SURFACE
from classifier.surface import surface_features
from classifier.text_model import text_model_of


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(SHIPPED, folder)
    return folder


def test_the_shipped_model_is_whole_and_its_card_tells_its_version() -> None:
    artifact = read_artifact(SHIPPED)
    decision_model_of(artifact)
    assert artifact.version in (SHIPPED / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert artifact.manifest["figures"]["text"]["auc"]["value"] > 0.8


def test_every_byte_counts(copy: Path) -> None:
    for name in ("model.npz", "encoder.onnx", "tokenizer.json", "rows.npz"):
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        with pytest.raises(ArtifactDamaged, match=name):
            read_artifact(copy)
        shutil.copy(SHIPPED / name, copy / name)
    read_artifact(copy)


def test_a_missing_file_is_named(copy: Path) -> None:
    (copy / "model.npz").unlink()
    with pytest.raises(ArtifactDamaged, match=r"model\.npz"):
        read_artifact(copy)


@pytest.mark.parametrize(
    "manifest", ["", "[]", '{"format": 99}', '{"format": 1}', '{"format": 1, "version": "x"}', "\xff"]
)
def test_a_manifest_that_makes_no_sense_is_refused(copy: Path, manifest: str) -> None:
    (copy / MANIFEST).write_text(manifest, encoding="latin-1")
    with pytest.raises(ArtifactDamaged, match="manifest"):
        read_artifact(copy)


def test_a_manifest_cannot_point_outside_its_folder(copy: Path) -> None:
    manifest = json.loads((copy / MANIFEST).read_text(encoding="utf-8"))
    manifest["files"] = {"../secret.npz": "0" * 64}
    (copy / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ArtifactDamaged, match="not a file beside it"):
        read_artifact(copy)


def test_a_number_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not finite"):
        write_artifact(tmp_path, {}, {"a.npz": {"x": np.array([1.0, np.nan])}}, "")


def test_another_embedder_is_told_from_the_right_one() -> None:
    artifact = read_artifact(SHIPPED)
    require_embedder(SHIPPED, artifact.embedder, artifact.embedder)
    other = Embedder("somebody/else", "0" * 64, 768)
    with pytest.raises(EmbedderMismatch, match="somebody/else"):
        read_artifact(SHIPPED, other)


def test_features_of_another_release_are_refused(copy: Path) -> None:
    manifest = json.loads((copy / MANIFEST).read_text(encoding="utf-8"))
    manifest["incomplete"]["features"].pop()
    (copy / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ArtifactDamaged, match="train it anew"):
        decision_model_of(read_artifact(copy))


def test_the_text_model_ignores_case_and_final_marks() -> None:
    artifact = read_artifact(SHIPPED)
    encoder = text_encoder_of(artifact)
    model = text_model_of(artifact, encoder.dimension)
    question = "which of our suppliers was late twice and who signed their contracts"
    logits = [
        model.logit(encoder.encode([form])[0], surface_features(form))
        for form in (question, question.upper(), question + "?", f"  {question} !")
    ]
    assert np.allclose(logits, logits[0], atol=1e-4)


def test_questions_encode_alike_alone_and_together_whatever_they_hold() -> None:
    encoder = text_encoder_of(read_artifact(SHIPPED))
    questions = ["late fee", "who signs?", "", "\x00", "\ud800", "word " * 20_000]
    together = encoder.encode(questions)
    assert np.isfinite(together).all()
    assert np.allclose(together[0], encoder.encode(["late fee"])[0], atol=0.05)


def test_a_vector_of_the_wrong_kind_is_refused() -> None:
    artifact = read_artifact(SHIPPED)
    model = text_model_of(artifact, text_encoder_of(artifact).dimension)
    surface = surface_features("late fee")
    with pytest.raises(BadVector, match="384"):
        model.logit(np.zeros(7, dtype=np.float32), surface)
    with pytest.raises(BadVector, match="finite"):
        model.logit(np.full(384, np.nan, dtype=np.float32), surface)


def test_contributions_add_up_to_the_distance_from_an_average_question() -> None:
    artifact = read_artifact(SHIPPED)
    model = decision_model_of(artifact).incomplete
    inputs = np.linspace(-1.0, 1.0, len(EVIDENCE) + len(SURFACE)).astype(np.float32)
    average = float(model.weights @ model.means) + model.bias
    assert model.logit(inputs) == pytest.approx(average + float(model.contributions(inputs).sum()), abs=1e-3)
