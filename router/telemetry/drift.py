"""Drift of live traffic against the training reference, as pointsman_drift_psi{signal = probability|embedding}.

A request leaves its log-odds and its vector in a queue of bounded length and goes on; a task bins them off the event
loop every few seconds and sets the gauges. Both are NaN until enough questions came, and where the model in use has no
reference for the signal: one made before references were, or vectors of another embedder.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from classifier.drift import DriftWindow
from classifier.linear import log_odds

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from classifier.drift import Reference, Stability
    from router.decide import Signals
    from router.parts import RoutingModels
    from router.telemetry.metrics import Metrics

_log = structlog.get_logger("pointsman.drift")
EVERY_SECONDS: Final = 10.0
PENDING: Final = 1024
"""Questions that wait to be binned; of more the latest are kept, which is a sample of a busy stretch."""


class DriftWatch:
    """Watches the questions of one process; `models` gives the model in use, or None while there is none."""

    def __init__(self, models: Callable[[], RoutingModels | None], metrics: Metrics) -> None:
        self._models = models
        self._gauges = {signal: metrics.drift.labels(signal) for signal in ("probability", "embedding")}
        for gauge in self._gauges.values():
            gauge.set(float("nan"))
        self._pending: deque[tuple[Signals, NDArray[np.float32]]] = deque(maxlen=PENDING)
        self._window: DriftWindow | None = None
        self._reference: Reference | None = None

    def note(self, signals: Signals, vector: NDArray[np.float32]) -> None:
        """Remember a question until the next look: what the models said and its embedding (d,)."""
        # A copy: the vector is a row of its batch, which would be kept alive with it.
        self._pending.append((signals, vector.copy()))

    async def follow(self) -> None:
        """Look every few seconds until cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            try:
                await self.look()
            except Exception:  # noqa: BLE001 - a broken model or vector must never stop the server
                _log.exception("drift could not be measured; trying again")

    async def look(self) -> None:
        """Take what came since the last look into the window and set the gauges."""
        models = self._models()
        reference = None if models is None else models.reference
        if reference is not self._reference:  # another model: what was binned by its edges says nothing
            self._reference, self._window = reference, None
        taken = list(self._pending)
        self._pending.clear()
        if reference is None or models is None:
            self._show(None)
            return
        window = self._window or DriftWindow(reference, vectors=models.knows_vectors)
        self._window = window
        self._show(await asyncio.to_thread(_measured, window, taken))

    def _show(self, found: Stability | None) -> None:
        for signal, gauge in self._gauges.items():
            value = None if found is None else getattr(found, signal)
            gauge.set(float("nan") if value is None else value)


def _measured(window: DriftWindow, taken: list[tuple[Signals, NDArray[np.float32]]]) -> Stability:
    if taken:
        window.add(
            [_unadapted(signals) for signals, _ in taken],
            [signals.evidence is None for signals, _ in taken],
            np.stack([vector for _, vector in taken]),
        )
    return window.stability()


def _unadapted(signals: Signals) -> float | None:
    """The log-odds as the shipped model would have said them: that is what the reference was made of."""
    return None if signals.combined is None else log_odds(signals.combined) - signals.adapted_by
