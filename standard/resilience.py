"""When to leave a failing endpoint alone, and when a retry still helps: two small state machines over a clock.

What goes wrong without them: an endpoint that hangs costs every question its whole timeout, and retries multiply the
load on one that is failing of load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_RESERVE = 3.0
_MOST = 20.0


class Breaker:
    """Closed, open after `failures` in a row for `seconds`, then half open: one call tries it. `clock` in seconds."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._failed = 0
        self._opened_at: float | None = None
        self._trying = False

    @property
    def open(self) -> bool:
        """Whether calls are refused at this moment."""
        return self._opened_at is not None and (self._trying or self._clock() < self._opened_at + self._seconds)

    def allow(self) -> bool:
        """Ask before a call; who is allowed says afterwards how it ended."""
        if self.open:
            return False
        self._trying = self._opened_at is not None
        return True

    def succeeded(self) -> None:
        """The call ended well."""
        self._failed, self._opened_at, self._trying = 0, None, False

    def failed(self) -> None:
        """The call failed."""
        self._failed += 1
        if self._trying or self._failed >= self._limit:
            self._opened_at = self._clock()
        self._trying = False

    def abandoned(self) -> None:
        """The call was given up by its caller: it says nothing of the endpoint."""
        self._trying = False


class RetryBudget:
    """Retries as a share of calls: each call earns `ratio`, each retry costs 1; a few are there from the start."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._left = _RESERVE if ratio > 0 else 0.0

    def called(self) -> None:
        """A call is made."""
        self._left = min(self._left + self._ratio, _MOST)

    def take(self) -> bool:
        """Take a retry out of the budget where one is left."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
