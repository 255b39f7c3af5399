"""The gauges of drift: set off the hot path, from the latest questions, by the model in use."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from classifier.artifact import SHIPPED, read_artifact
from classifier.drift import LEAST
from classifier.linear import sigmoid
from router.decide import Signals
from router.routing.models import LoadedModels, load_models
from router.telemetry.drift import PENDING, DriftWatch
from router.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.fixture(scope="module")
def models() -> LoadedModels:
    return load_models(SHIPPED, read_artifact(SHIPPED).embedder)


def gauges(metrics: Metrics) -> tuple[float, float]:
    read = metrics.registry.get_sample_value
    found = [read("pointsman_drift_psi", {"signal": name}) for name in ("probability", "embedding")]
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def questions(count: int, logit: float, adapted_by: float = 0.0) -> list[tuple[Signals, NDArray[np.float32]]]:
    vector = np.full(384, 0.05, dtype=np.float32)
    signals = Signals(text=0.5, evidence=0.5, combined=sigmoid(logit + adapted_by), adapted_by=adapted_by)
    return [(signals, vector)] * count


async def test_both_gauges_are_unknown_until_enough_was_asked(models: LoadedModels) -> None:
    metrics = Metrics()
    watch = DriftWatch(lambda: models, metrics)
    assert all(math.isnan(value) for value in gauges(metrics))
    for signals, vector in questions(LEAST - 1, 0.0):
        watch.note(signals, vector)
    await watch.look()
    assert all(math.isnan(value) for value in gauges(metrics))
    watch.note(*questions(1, 0.0)[0])
    await watch.look()
    assert min(gauges(metrics)) > 0.25  # the same question over and over


async def test_what_adaptation_moved_is_taken_back(models: LoadedModels) -> None:
    assert models.reference is not None
    found = []
    for adapted_by in (0.0, 5.0):
        metrics = Metrics()
        watch = DriftWatch(lambda: models, metrics)
        for edge in models.reference.decision.tolist():
            for signals, vector in questions(40, edge + 1e-6, adapted_by):
                watch.note(signals, vector)
        await watch.look()
        found.append(gauges(metrics)[0])
    assert found[0] == pytest.approx(found[1])


async def test_another_model_begins_anew_and_none_has_no_figure(models: LoadedModels) -> None:
    metrics = Metrics()
    current: list[LoadedModels | None] = [models]
    watch = DriftWatch(lambda: current[0], metrics)
    for signals, vector in questions(LEAST, 0.0):
        watch.note(signals, vector)
    await watch.look()
    assert not math.isnan(gauges(metrics)[0])
    for other in (None, replace(models, reference=None)):
        current[0] = other
        await watch.look()
        assert all(math.isnan(value) for value in gauges(metrics))
    current[0] = models
    await watch.look()
    assert math.isnan(gauges(metrics)[0])


async def test_a_burst_is_bounded(models: LoadedModels) -> None:
    watch = DriftWatch(lambda: models, Metrics())
    for signals, vector in questions(PENDING + 500, 0.0):
        watch.note(signals, vector)
    assert len(watch._pending) == PENDING
