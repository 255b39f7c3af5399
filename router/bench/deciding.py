"""The decision: how long it takes and how well it tells, beside semantic-router's on the same questions.

Our own labelled questions, every domain held out: our text model by the log-odds that come with its artifact,
semantic-router by routes whose utterances are the questions of the other domains, with MiniLM's vectors of them.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from classifier.artifact import SHIPPED, read_artifact
from classifier.calibration import expit
from classifier.measures import auc
from classifier.surface import surface_features
from classifier.training.keys import key_number, question_key
from classifier.training.rows import own_questions
from router.bench.figure import Figure, Figures, Report
from router.bench.processes import output_of
from router.percentile import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from router.application import Application
    from router.routing.models import LoadedModels

_FOLDS: Final = 5
_BATCH: Final = 64
_PEER_SECONDS: Final = 300.0
_SCRIPT: Final = Path(__file__).with_name("semantic_router_peer.py")


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Questions with their labels (n,), folds of whole domains (n,), and our log-odds with the domain held out."""

    questions: Sequence[str]
    labels: NDArray[np.bool_]
    folds: NDArray[np.int64]
    ours: NDArray[np.float64]


def labelled(most: int) -> _Labelled:
    """Our own questions that the shipped artifact has held-out log-odds of, at most `most` (0 = all) evenly drawn."""
    artifact = read_artifact(SHIPPED)
    kept = dict(
        zip(artifact.arrays["own_keys"].tolist(), artifact.arrays["own_held_out"].astype(float).tolist(), strict=True)
    )
    rows = [(row, kept[key]) for row in own_questions() if (key := key_number(question_key(row.question))) in kept]
    rows = rows[:: max(1, len(rows) // most)] if most else rows
    domains = np.unique([row.domain for row, _ in rows], return_inverse=True)[1].astype(np.int64)
    return _Labelled(
        [row.question for row, _ in rows],
        np.array([row.complex for row, _ in rows], dtype=bool),
        domains % _FOLDS,
        np.array([score for _, score in rows]),
    )


async def decision_figures(application: Application, peers: Path | None, most: int, report: Report) -> Figures:
    """Time our decision; with `peers`, a Python that has semantic-router, its decision; and how well both tell.

    Raises FailedPrecondition where the peer fails.
    """
    report("deciding")
    models = application.models.require()
    rows = await asyncio.to_thread(labelled, most)
    figures = _timed(models, rows.questions)
    figures |= _quality("pointsman", rows.ours, expit(rows.ours) >= 0.5, rows.labels, "our text model")
    if peers is None:
        return figures
    report("semantic-router deciding")
    vectors = np.concatenate(
        [
            await application.embedder.embed_queries(rows.questions[first : first + _BATCH])
            for first in range(0, len(rows.questions), _BATCH)
        ]
    )
    found = await _asked(peers, vectors, rows)
    who = f"semantic-router {found['version']}, vectors handed in"
    ordered = sorted(found["times"])
    figures |= {
        "decision_semantic_router_p50_us": Figure(percentile(ordered, 0.5) * 1e6, "us", f"one decision, {who}"),
        "decision_semantic_router_p99_us": Figure(percentile(ordered, 0.99) * 1e6, "us", f"one decision, {who}"),
    }
    return figures | _quality(
        "semantic_router", np.array(found["scores"]), np.array(found["chosen"], dtype=bool), rows.labels, who
    )


def _timed(models: LoadedModels, questions: Sequence[str]) -> Figures:
    """Time the text model given the question's vector: wording features and one dot product."""
    encoded = np.full(models.text.dimension, models.text.dimension**-0.5, dtype=np.float32)
    times = []
    for question in questions[:500]:
        at = time.perf_counter()
        models.text.logit(encoded, surface_features(question))
        times.append(time.perf_counter() - at)
    ordered = sorted(times)
    what = "one decision of the text model, the question's vector at hand"
    return {
        "decision_pointsman_p50_us": Figure(percentile(ordered, 0.5) * 1e6, "us", what),
        "decision_pointsman_p99_us": Figure(percentile(ordered, 0.99) * 1e6, "us", what),
    }


def _quality(
    name: str, scores: NDArray[np.float64], chosen: NDArray[np.bool_], labels: NDArray[np.bool_], who: str
) -> Figures:
    what = f"{len(labels)} labelled questions of our own, their domains held out: {who}"
    return {
        f"decision_{name}_auc": Figure(float(auc(scores, labels) or 0.0), "", f"area under the ROC curve, {what}"),
        f"decision_{name}_accuracy": Figure(float((chosen == labels).mean()), "", f"share decided right, {what}"),
    }


async def _asked(peers: Path, vectors: NDArray[np.float32], rows: _Labelled) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "questions.npz"
        np.savez(path, vectors=vectors, labels=rows.labels.astype(np.int64), folds=rows.folds)
        output = await output_of(str(peers), str(_SCRIPT), str(path), seconds=_PEER_SECONDS)
    found: dict[str, Any] = json.loads(output)
    return found
