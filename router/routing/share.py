"""The recent share of agentic answers of each tenant: what caps on that share are compared with."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

_TENANTS_KEPT = 10_000


@dataclass(slots=True)
class _Window:
    """Counts of the current and the previous span of time; together they slide."""

    opened: float
    answers: int = 0
    agentic: int = 0
    before_answers: int = 0
    before_agentic: int = 0


class AgenticShare:
    """Counts answers over two spans of `seconds` each, so that the share follows the last one to two spans.

    With fewer than `enough` answers in sight the share is 0: a cap must not act on the first question of the day.
    """

    def __init__(self, seconds: float = 150.0, enough: int = 20) -> None:
        self._seconds = seconds
        self._enough = enough
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def add(self, tenant: str, *, agentic: bool) -> None:
        """Count one answer."""
        window = self._window(tenant)
        window.answers += 1
        window.agentic += agentic

    def of(self, tenant: str) -> float:
        """The share, 0 to 1."""
        window = self._window(tenant)
        answers = window.answers + window.before_answers
        return (window.agentic + window.before_agentic) / answers if answers >= self._enough else 0.0

    def _window(self, tenant: str) -> _Window:
        now = time.monotonic()
        window = self._windows.get(tenant)
        if window is None:
            window = self._windows[tenant] = _Window(now)
            if len(self._windows) > _TENANTS_KEPT:
                self._windows.popitem(last=False)
        elif now - window.opened >= self._seconds:
            stale = now - window.opened >= 2 * self._seconds
            window.before_answers, window.before_agentic = (0, 0) if stale else (window.answers, window.agentic)
            window.answers = window.agentic = 0
            window.opened = now
        self._windows.move_to_end(tenant)
        return window
