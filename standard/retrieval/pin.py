"""Which generation of a collection a run reads: the one that it read first.

Prevents a run from reading two: passages are named by their place in a document, and generations are cut differently,
so a name that one search gave may be another passage to the next. A generation that is not active any more is kept
until somebody drops it; once it is gone, a run goes on with the active one.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_pins: ContextVar[dict[tuple[str, str], int] | None] = ContextVar("pinned_generations", default=None)


def pin_generations() -> None:
    """From now on this task, and those it begins, stay with the generation of each collection that they read first."""
    _pins.set({})


@contextmanager
def reading_generation(tenant: str, collection: str, generation: int) -> Iterator[None]:
    """Within the block this task, and those it begins, read that generation of the collection, active or not."""
    token = _pins.set({(tenant, collection): generation})
    try:
        yield
    finally:
        _pins.reset(token)


def pinned(tenant: str, collection: str) -> int | None:
    """The generation that this task stays with, or None."""
    pins = _pins.get()
    return None if pins is None else pins.get((tenant, collection))


def pin(tenant: str, collection: str, generation: int) -> None:
    """Note the generation that was read, where this task pins them."""
    pins = _pins.get()
    if pins is not None:
        pins[tenant, collection] = generation
