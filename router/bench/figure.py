"""What a measurement comes to: a value, how it was measured, and what it should be."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from router.percentile import percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Report: TypeAlias = "Callable[[str], None]"
"""Told what is being measured."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value; `what` says how it was measured, `goal` the most it should be (None: nothing was set)."""

    value: float
    unit: str
    what: str
    goal: float | None = None


Figures: TypeAlias = dict[str, Figure]


@dataclass(frozen=True, slots=True)
class Goals:
    """The most that a median and a 99th percentile should be, in the unit of both; None where nothing was set."""

    median: float | None = None
    most: float | None = None


NO_GOALS = Goals()


def percentiles(name: str, seconds: Sequence[float], what: str, goals: Goals = NO_GOALS) -> Figures:
    """Median and 99th percentile of times (at least one), in milliseconds, as `name`_p50_ms and `name`_p99_ms."""
    ordered = sorted(seconds)
    return {
        f"{name}_p50_ms": Figure(percentile(ordered, 0.5) * 1e3, "ms", what, goals.median),
        f"{name}_p99_ms": Figure(percentile(ordered, 0.99) * 1e3, "ms", what, goals.most),
    }


def machine() -> dict[str, str]:
    """What the figures were measured on, and when (UTC)."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "load_before": load_average(),
    }


def load_average() -> str:
    """The machine's load over the last minute."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
