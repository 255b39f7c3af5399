"""The use case of a change of embedder: who asks for what, over the corpus and the embedders of this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import structlog

from router.configs import scan_of
from router.embedders import wanted_spec
from standard.corpus.collections import get_collection
from standard.corpus.reembed.compare import Asked, compare, sampled
from standard.corpus.reembed.state import changes_of, disk_needed, get_reembedding, start_reembedding
from standard.corpus.reembed.switch import cancel, finish, roll_back, switch
from standard.domain.passage import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from router.access.identity import Identity
    from router.settings import Settings
    from standard.corpus.collections import Collection
    from standard.corpus.embedders import Embedders
    from standard.corpus.reembed.compare import Comparison
    from standard.corpus.reembed.state import Reembedding, ReembeddingChange
    from standard.corpus.scan import Scan
    from standard.database.pool import Pool
    from standard.domain.passage import SearchResult
    from standard.retrieval.retriever import CorpusRetriever

Step = Literal["switch", "roll_back", "finish", "cancel"]
_log = structlog.get_logger("pointsman.reembed")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The embedder that is asked for, as StartReembeddingRequest names it; 0 and "" = not said."""

    model: str = ""
    base_url: str = ""
    dimensions: int = 0
    max_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reembeddings:
    """Changes of embedders. `embed` is that of the gateway's own embedder."""

    pool: Pool
    embedders: Embedders
    settings: Settings
    retriever: CorpusRetriever
    embed: Callable[[str], Awaitable[NDArray[np.float32]]]

    def scan_of(self, collection: Collection) -> tuple[Scan, str]:
        """The scan of a collection's passages and the version of its verdicts."""
        return scan_of(collection, self.settings)

    async def start(self, identity: Identity, name: str, wanted: Wanted) -> tuple[Reembedding, int]:
        """Begin a change, or go on with it; also returns the bytes that it will take. Raises as start_reembedding."""
        spec = wanted_spec(self.settings, identity, wanted.model, wanted.base_url, wanted.dimensions, wanted.max_tokens)
        change = await start_reembedding(self.pool, identity.tenant, name, spec, self.embedders, by=identity.name)
        collection = await get_collection(self.pool, identity.tenant, name)
        needed = await disk_needed(self.pool, collection, change.new.embedder.dimensions)
        _log.info("a change of embedder", collection=name, to=change.new.embedder.id, disk_bytes=needed)
        return change, needed

    async def get(self, tenant: str, name: str) -> tuple[Reembedding, list[ReembeddingChange]]:
        """How far a change is, and what was done to the collection's embedder so far. Raises NotFound."""
        return await get_reembedding(self.pool, tenant, name), await changes_of(self.pool, tenant, name)

    async def step(self, identity: Identity, name: str, step: Step) -> Reembedding:
        """Take a step. Raises as the functions of standard.corpus.reembed.switch."""
        tenant, by = identity.tenant, identity.name
        match step:
            case "switch":
                change = await switch(self.pool, tenant, name, self.embedders, self.scan_of, by=by)
            case "roll_back":
                change = await roll_back(self.pool, tenant, name, self.embedders, self.scan_of, by=by)
            case "finish":
                change = await finish(self.pool, tenant, name, by=by)
            case "cancel":
                change = await cancel(self.pool, tenant, name, by=by)
        _log.info("a change of embedder went on", collection=name, step=step, by=by)
        return change

    async def compare(
        self, identity: Identity, name: str, questions: Sequence[Asked], *, k: int, sample: int
    ) -> Comparison:
        """Compare what both generations find for questions, or for `sample` sentences of the collection."""
        change = await get_reembedding(self.pool, identity.tenant, name)
        scope = Scope(identity.tenant, name, groups=identity.groups)

        async def search(text: str, passages: int) -> SearchResult:
            return await self.retriever.search(scope, text, await self.embed(text), k=passages)

        return await compare(change, questions or await sampled(self.pool, change, sample), search, k=k)
