"""What the stages of a run hand to each other, and what the run knows of itself."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from standard.corpus.document import MAX_DOCUMENT_BYTES, Rejection, SourceDocument

if TYPE_CHECKING:
    from standard.corpus.chunking import Chunk
    from standard.corpus.collections import Collection
    from standard.corpus.scan import Scan, ScanVerdict
    from standard.embedding.protocol import PassageVectors

MAX_REPORTED_REJECTIONS = 1000
BATCH = 64
"""Chunks embedded and written together, more or less."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """`prune`: delete documents of the collection that this run did not bring. `max_bytes`: the largest text, in UTF-8.

    `wait_seconds`: how long to wait for another run of the same collection.
    """

    prune: bool = False
    max_bytes: int = MAX_DOCUMENT_BYTES
    wait_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Judge:
    """The scan, and the version that its verdicts are stored under."""

    scan: Scan
    version: str


@dataclass(frozen=True, slots=True)
class Known:
    """A document that is there already. `stale`: some verdict of it is of another version."""

    key: int
    content_hash: str
    stale: bool


@dataclass(slots=True)
class Item:
    """A chunk on its way. `document` is set on a document's first chunk, `last` on its last."""

    document_id: str
    chunk: Chunk
    verdict: ScanVerdict
    document: tuple[SourceDocument, str] | None
    replaces: bool
    last: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks with their vectors, as the generation of `collection` needs them."""

    collection: Collection
    items: list[Item]
    vectors: PassageVectors


class Batches:
    """What waits to be written: first what was made again for another generation, then what the embedder brings."""

    def __init__(self) -> None:
        self.embedded: asyncio.Queue[Batch | None] = asyncio.Queue(2)
        self._again: deque[Batch] = deque()

    async def get(self) -> Batch | None:
        """The next batch, None after the last."""
        return self._again.popleft() if self._again else await self.embedded.get()

    def put_first(self, batches: Sequence[Batch]) -> None:
        """These come before all else, in their order."""
        self._again.extendleft(reversed(batches))


@dataclass(slots=True)
class Run:
    """The state of a run, of one event loop. `generation` is the one that was written to last, 0 for none."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    passages: int = 0
    rejected: list[Rejection] = field(default_factory=list)
    rejected_count: int = 0
    unnamed_rejections: int = 0
    seen: set[bytes] = field(default_factory=set)
    embedding_seconds: float = 0.0
    rescanned: int = 0
    generation: int = 0

    def reject(self, rejection: Rejection) -> None:
        """Count and keep a rejection; what it names is not taken for gone."""
        self.rejected_count += 1
        if len(self.rejected) < MAX_REPORTED_REJECTIONS:
            self.rejected.append(rejection)
        if rejection.document_id:
            self.seen.add(digest_of(rejection.document_id))  # it exists somewhere: pruning must not take it
        else:
            self.unnamed_rejections += 1


def digest_of(document_id: str) -> bytes:
    """Sixteen bytes that stand for an id, so that a run may have seen millions."""
    return hashlib.blake2b(document_id.encode("utf-8", "replace"), digest_size=16).digest()
