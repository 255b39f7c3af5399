"""`pointsman train`: a routing model adapted to somebody's own labels, with a report of before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.artifact import CARD, SHIPPED, digest_of, read_artifact, write_artifact
from classifier.encoder import text_encoder_of
from classifier.errors import BadLabels
from classifier.labels import read_labels
from classifier.linear import Linear
from classifier.surface import NAMES, surface_features
from classifier.text_model import linear_of
from classifier.training.adapt import OUTER, adapt
from classifier.training.fit import logits
from classifier.training.ship import arrays_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from classifier.labels import OwnLabels
    from classifier.training.adapt import Adaptation, Adapted

ENOUGH = 50
"""Labels below which a report warns that they are few."""
LOPSIDED = 0.1
"""Share of the rarer label below which it warns that they are one-sided."""
_BATCH = 256


def train_from_labels(
    path: Path,
    output: Path,
    *,
    base: Path = SHIPPED,
    progress: Callable[[float], None] = lambda _: None,
) -> dict[str, Any]:
    """Adapt the model in `base` to the labels in `path` and write the result to the folder `output`.

    Where nested cross-validation finds the adapted model no better, `output` becomes a copy of `base`, and the report
    says so. `progress` takes the share done, 0-1. Raises BadLabels and ArtifactDamaged.
    """
    labels = read_labels(path)
    positives = sum(labels.complex)
    rarer = min(positives, len(labels.complex) - positives)
    if rarer < OUTER:
        raise BadLabels(
            f"{path} holds {positives} complex and {len(labels.complex) - positives} simple questions;"
            f" at least {OUTER} of each are needed to learn from them and to judge what was learned"
        )
    artifact = read_artifact(base)
    encoder = text_encoder_of(artifact)
    before = linear_of(artifact, "text", encoder.dimension, NAMES)
    inputs = np.empty((len(labels.questions), encoder.dimension + len(NAMES)), dtype=np.float32)
    for start in range(0, len(labels.questions), _BATCH):
        part = labels.questions[start : start + _BATCH]
        inputs[start : start + len(part), : encoder.dimension] = encoder.encode(part)
        inputs[start : start + len(part), encoder.dimension :] = [surface_features(question) for question in part]
        progress(0.4 * (start + len(part)) / len(labels.questions))
    scaled = (before.held(inputs) - before.means) / before.spreads
    outcome = adapt(
        logits(before, inputs),
        scaled.astype(np.float64),
        np.array(labels.complex, dtype=bool),
        report=lambda share: progress(0.4 + 0.6 * share),
    )
    arrays = dict(artifact.arrays)
    manifest = {key: value for key, value in artifact.manifest.items() if key not in {"format", "files"}}
    if outcome.adaptation is not None:
        text = adapted_linear(before, outcome.adaptation)
        arrays |= arrays_of("text", text) | {f"before_{name[5:]}": arrays[name] for name in arrays_of("text", before)}
        manifest["before"] = manifest["text"]
        manifest["version"] = f"{artifact.version}.adapted-{digest_of(arrays_of('text', text))[:8]}"
    report = _report(labels, outcome, str(manifest["version"]), output)
    manifest["adaptation"] = {key: report[key] for key in ("adapted", "labels", "before", "after", "strength")}
    rows = {name: arrays[name] for name in arrays if name.startswith(("row_", "own_"))}
    reference = {name: arrays[name] for name in arrays if name.startswith("reference_")}
    models = {name: arrays[name] for name in arrays if name not in rows and name not in reference}
    files = {"model.npz": models, "rows.npz": rows} | ({"reference.npz": reference} if reference else {})
    write_artifact(output, manifest, files, _card(base, report), artifact.blobs)
    progress(1.0)
    return report


def adapted_linear(before: Linear, adaptation: Adaptation) -> Linear:
    """Return the adapted text model as one linear model over the same inputs."""
    change = (adaptation.weights / before.spreads).astype(np.float64)
    return Linear(
        (adaptation.scale * before.weights + change).astype(np.float32),
        adaptation.scale * before.bias + adaptation.shift - float(change @ before.means),
        before.means,
        before.spreads,
        before.reach,
    )


def _report(labels: OwnLabels, outcome: Adapted, version: str, output: Path) -> dict[str, Any]:
    positives = sum(labels.complex)
    return {
        "model_version": version,
        "output": str(output),
        "adapted": outcome.adaptation is not None,
        "labels": {
            "read": labels.read,
            "used": len(labels.questions),
            "simple": len(labels.complex) - positives,
            "complex": positives,
            "repeats": labels.repeats,
            "conflicts": len(labels.conflicts),
            "refused": labels.refused_count,
            "sampled": labels.sampled,
        },
        "refused": [{"line": refused.line, "problem": refused.problem} for refused in labels.refused],
        "conflicts": list(labels.conflicts[:20]),
        "warnings": warnings_of(labels, outcome),
        "before": outcome.before.as_json(),
        "after": outcome.after.as_json(),
        "strength": outcome.strength,
    }


def warnings_of(labels: OwnLabels, outcome: Adapted) -> list[str]:
    """Return what is doubtful about the labels or about what came of them, in words."""
    count, positives = len(labels.questions), sum(labels.complex)
    rarer = min(positives, count - positives)
    found = []
    if count < ENOUGH:
        found.append(f"{count} labels are few: figures from them are rough; about 100 are worth having")
    if rarer < LOPSIDED * count:
        kind = "complex" if positives < count - positives else "simple"
        found.append(f"only {rarer} of {count} questions are {kind}: the labels are one-sided")
    if labels.conflicts:
        found.append(f"{len(labels.conflicts)} questions came with both labels and were left out")
    if labels.refused_count:
        found.append(f"{labels.refused_count} lines were refused; the first are listed")
    if labels.sampled:
        found.append(f"of {labels.read} rows a random sample was used")
    if outcome.adaptation is None:
        found.append("the labels did not make a better model on questions held out; the model was left as it was")
    return found


def _card(base: Path, report: dict[str, Any]) -> str:
    try:
        told = (base / CARD).read_text(encoding="utf-8")
    except OSError:
        told = ""
    used = report["labels"]
    head = [
        f"# Adapted routing model {report['model_version']}" if report["adapted"] else "# Routing model, not adapted",
        "",
        f"From {used['used']} labels of one's own ({used['simple']} simple, {used['complex']} complex). On questions",
        f"held out, log loss {report['before']['log_loss']:.4f} before and {report['after']['log_loss']:.4f} after.",
        "What follows is the card of the model that it was made from.",
        "",
    ]
    return "\n".join(head) + told
