"""The embedders of a process: its own, and those of collections that another one embedded.

Prevents vectors of one model from being compared with those of another: an embedder is handed out for what a generation
remembers of its own (name, fingerprint, length), and an embedder that turns out to be another is refused.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from standard.corpus.collections import EmbedderIdentity
from standard.domain.errors import EmbedderUnavailable, FailedPrecondition, PointsmanError
from standard.embedding.factory import open_embedder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

    from standard.corpus.collections import EmbedderSpec
    from standard.embedding.config import EmbeddingConfig
    from standard.embedding.protocol import Embedder

MOST_OPEN = 8
"""Embedders opened beside the process's own; a local model holds some hundred megabytes."""
FAILED_SECONDS = 5.0
"""An embedder that could not be opened is tried again after so long."""


def identity_of(embedder: Embedder) -> EmbedderIdentity:
    """What a collection remembers of an embedder."""
    return EmbedderIdentity(embedder.id, embedder.checksum, embedder.dimensions)


class Embedders:
    """Opens each embedder once and keeps it. Use as an async context manager: leaving it closes what it opened.

    `own` is the process's embedder, which it does not close, and `own_spec` how others may open it. `configure` tells
    how to open a spec; it raises FailedPrecondition for what these settings do not know.
    """

    def __init__(
        self, own: Embedder, own_spec: EmbedderSpec, configure: Callable[[EmbedderSpec], EmbeddingConfig]
    ) -> None:
        self.own = own
        self.own_identity = identity_of(own)
        self.own_spec = own_spec
        self._configure = configure
        self._open: dict[EmbedderSpec, tuple[Embedder, AsyncExitStack]] = {}
        self._failed: dict[EmbedderSpec, tuple[PointsmanError, float]] = {}
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.keep(())

    async def open(self, spec: EmbedderSpec) -> Embedder:
        """Return the embedder that a spec names.

        Raises FailedPrecondition (a setting or an extra is missing, too many are open), EmbedderUnavailable, Damaged.
        """
        if spec == self.own_spec:
            return self.own
        if (known := self._open.get(spec)) is not None:
            return known[0]
        async with self._opening:
            if (known := self._open.get(spec)) is not None:
                return known[0]
            now = asyncio.get_running_loop().time()
            problem, until = self._failed.get(spec, (None, 0.0))
            if problem is not None and now < until:
                raise problem.with_traceback(None)
            if len(self._open) >= MOST_OPEN:
                raise FailedPrecondition(f"{MOST_OPEN} embedders are open beside the gateway's own; finish a change")
            async with AsyncExitStack() as stack:
                try:
                    embedder = await stack.enter_async_context(open_embedder(self._configure(spec)))
                except PointsmanError as error:
                    self._failed = {known: kept for known, kept in self._failed.items() if kept[1] > now}
                    self._failed[spec] = (error, now + FAILED_SECONDS)
                    raise
                self._failed.pop(spec, None)
                self._open[spec] = (embedder, stack.pop_all())
        return embedder

    async def of(self, identity: EmbedderIdentity, spec: EmbedderSpec | None) -> Embedder:
        """Return the embedder that made a generation's vectors.

        Raises as `open`, and FailedPrecondition for an embedder that is another one by now.
        """
        if identity == self.own_identity:
            return self.own
        if spec is None:
            own = self.own_identity
            raise FailedPrecondition(
                f"the collection was embedded with {identity.id} ({identity.checksum[:12]}), but this process embeds "
                f"with {own.id} ({own.checksum[:12]}); configure that embedder, or change the collection's: "
                "pointsman reembed start"
            )
        embedder = await self.open(spec)
        found = identity_of(embedder)
        if found.dimensions != identity.dimensions:
            raise EmbedderUnavailable(
                f"the embedder {found.id} gives {found.dimensions} dimensions now, the collection's vectors have "
                f"{identity.dimensions}; their questions cannot be embedded"
            )
        if found != identity:
            raise FailedPrecondition(
                f"{spec.model!r} is {found.id} ({found.checksum[:12]}) here, but the collection was embedded with "
                f"{identity.id} ({identity.checksum[:12]})"
            )
        return embedder

    def opened(self) -> tuple[EmbedderSpec, ...]:
        """What is open beside the process's own."""
        return tuple(self._open)

    async def keep(self, specs: Collection[EmbedderSpec]) -> None:
        """Close what is open and not among `specs`; whoever needs it yet opens it again."""
        for spec in [each for each in self._open if each not in specs]:
            _, stack = self._open.pop(spec)
            await stack.aclose()
