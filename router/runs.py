"""Runs in flight: one producer, any number of readers, each of whom sees every event from where they ask.

A run's events are kept in one list that its own budgets bound, so that a slow reader holds back nobody: neither the
model's connection nor another reader. When the last reader leaves, the run is cancelled (unless runs are detached).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from standard.domain.event import Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from router.journal.store import BegunRun
    from standard.domain.event import EventBody


@dataclass(slots=True, eq=False)
class LiveRun:
    """A run that this process works on or follows. `error` is set when it ended without an answer.

    `groups` are the access groups with which it was asked, `collection` where, `narrowed` whether by a caller held to
    some collections; `reply` is the answer to a clarification with which it goes on.
    `held` is the hold on its row in the journal, while there is one: its lease is renewed as long as the run lives.
    """

    tenant: str
    request_id: str
    body_hash: str
    groups: frozenset[str] = frozenset()
    collection: str = ""
    narrowed: bool = False
    reply: str = ""
    held: BegunRun | None = None
    events: list[Event] = field(default_factory=list)
    finished: bool = False
    error: BaseException | None = None
    readers: int = 0
    task: asyncio.Task[None] | None = None
    _last: Event | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, body: EventBody, text: str) -> Event:
        """Number a body and wake the readers."""
        event = Event(len(self.events) + 1, body, text)
        self.events.append(event)
        self._wake()
        return event

    def take_over(self, events: Sequence[Event]) -> None:
        """Show the readers what the journal has of the run, as it is numbered there."""
        if events:
            self.events.extend(events)
            self._wake()

    def hold(self, body: EventBody, text: str) -> None:
        """Number the last event but keep it from the readers until `finish`: it is recorded first."""
        self._last = Event(len(self.events) + 1, body, text)

    def recordable(self) -> list[Event]:
        """Every event so far, a held one included."""
        return self.events if self._last is None else [*self.events, self._last]

    def finish(self, error: BaseException | None = None) -> None:
        """End the run for its readers; with an error they get it after the events there are."""
        if error is None and self._last is not None:
            self.events.append(self._last)
        self.error = error
        self.finished = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def read(self, after_sequence: int = 0) -> AsyncGenerator[Event]:
        """Yield the events after `after_sequence`, then new ones as they come; raise the run's error at its end."""
        position = max(after_sequence, 0)
        while True:
            changed = self._changed
            while position < len(self.events):
                position += 1
                yield self.events[position - 1]
            if self.finished:
                if self.error is not None:
                    raise self.error
                return
            if changed is self._changed:
                await changed.wait()


class RunRegistry:
    """The live runs of this process by (tenant, request_id)."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], LiveRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, tenant: str, request_id: str) -> LiveRun | None:
        """The live run of that name, if this process has it."""
        return self._runs.get((tenant, request_id))

    def all(self) -> list[LiveRun]:
        """Every live run of this process."""
        return list(self._runs.values())

    def add(self, run: LiveRun) -> None:
        """Make a run findable."""
        self._runs[run.tenant, run.request_id] = run

    def remove(self, run: LiveRun) -> None:
        """Forget a run that ended; another one of its name stays."""
        if self._runs.get((run.tenant, run.request_id)) is run:
            del self._runs[run.tenant, run.request_id]
