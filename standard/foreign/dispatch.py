"""One retriever and one library over our own corpus and over foreign tables: the collection's name decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standard.domain.errors import FailedPrecondition
from standard.domain.question import PLAIN, AnswerStyle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.domain.passage import Passage, RetrievedPassage, Retriever, Scope, SearchResult, Section
    from standard.foreign.library import ForeignLibrary
    from standard.foreign.retriever import ForeignRetriever
    from standard.retrieval.reader import CorpusReader


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table as searches and as the agentic loop see it; `style` is how answers from it are written."""

    retriever: ForeignRetriever
    library: ForeignLibrary
    style: AnswerStyle = PLAIN


@dataclass(frozen=True, slots=True)
class Tables:
    """The foreign tables by the collection's name."""

    by_name: Mapping[str, ForeignTable]

    def of(self, tenant: str, collection: str) -> ForeignTable | None:
        """The table behind a collection's name; None where it is one of our own corpus, for this tenant."""
        table = self.by_name.get(collection)
        return table if table is not None and table.retriever.mapping.open_to(tenant) else None

    def names(self, tenant: str) -> list[str]:
        """Names of the tables that a tenant may know of, in order."""
        return sorted(name for name in self.by_name if self.of(tenant, name))

    def refuse(self, tenant: str, collection: str, act: str) -> None:
        """Raise FailedPrecondition where the collection is a foreign table, which is only read; `act` names the act."""
        table = self.of(tenant, collection)
        if table is not None:
            where = table.retriever.mapping.table or table.retriever.mapping.layout
            raise FailedPrecondition(
                f"{act}: the collection {collection!r} is a table of yours ({where}), which is only read here; "
                "change it with the program that fills it, or use a collection of another name"
            )


@dataclass(frozen=True, slots=True)
class RetrieverByCollection:
    """Implements standard.domain.passage.Retriever."""

    own: Retriever
    tables: Tables

    async def search(
        self,
        scope: Scope,
        text: str,
        vector: NDArray[np.float32],
        *,
        k: int,
        exclude: frozenset[str] = frozenset(),
    ) -> SearchResult:
        """Search where the scope's collection lies."""
        table = self.tables.of(scope.tenant, scope.collection)
        retriever = self.own if table is None else table.retriever
        return await retriever.search(scope, text, vector, k=k, exclude=exclude)

    async def search_many(
        self, scope: Scope, texts: Sequence[str], vectors: NDArray[np.float32], *, k: int
    ) -> list[SearchResult]:
        """Search for several texts where the scope's collection lies."""
        table = self.tables.of(scope.tenant, scope.collection)
        retriever = self.own if table is None else table.retriever
        return await retriever.search_many(scope, texts, vectors, k=k)


@dataclass(frozen=True, slots=True)
class LibraryByCollection:
    """Implements agentic.library.Library."""

    own: CorpusReader
    tables: Tables

    def _of(self, scope: Scope) -> CorpusReader | ForeignLibrary:
        table = self.tables.of(scope.tenant, scope.collection)
        return self.own if table is None else table.library

    async def search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        """Find passages by meaning and words."""
        return await self._of(scope).search(scope, text, vector, k=k)

    async def keyword_search(self, scope: Scope, keywords: str, *, k: int) -> Sequence[RetrievedPassage]:
        """Find passages that hold keywords."""
        return await self._of(scope).keyword_search(scope, keywords, k=k)

    async def semantic_search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        """Find passages by meaning alone."""
        return await self._of(scope).semantic_search(scope, text, vector, k=k)

    async def find_linked(
        self, scope: Scope, passages: Sequence[Passage], *, question: str, vector: NDArray[np.float32], k: int
    ) -> Sequence[RetrievedPassage]:
        """Find passages that share names with these."""
        return await self._of(scope).find_linked(scope, passages, question=question, vector=vector, k=k)

    async def read_section(self, scope: Scope, passage: Passage, *, neighbours: bool) -> Section:
        """Read what stands around a passage."""
        return await self._of(scope).read_section(scope, passage, neighbours=neighbours)

    async def mentioned(self, scope: Scope, names: Sequence[str]) -> frozenset[str]:
        """Return the names that the collection speaks of."""
        return await self._of(scope).mentioned(scope, names)
