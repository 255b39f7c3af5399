"""Passages: what a retriever returns and an answer cites."""

from __future__ import annotations

from collections.abc import Mapping  # at run time: checkpoints are validated by these annotations
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from standard.domain.text import UntrustedText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from standard.domain.filter import Filter


@dataclass(frozen=True, slots=True)
class Scope:
    """What a search may see. It comes from the caller's identity and request, never from a model.

    `groups` are the caller's access groups; a document with groups is visible only to callers who share one.
    `narrowed` says that the caller may see only some of the tenant's collections, `collection` among them: what does
    not know collections must not answer.
    """

    tenant: str = "default"
    collection: str = "default"
    filter: Filter | None = None
    groups: frozenset[str] = frozenset()
    narrowed: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk of a document, small enough for the embedder's window.

    `passage_id` is `<document_id>#<position>`, unique in its collection; `position` counts chunks of a document from 0.
    `title` and `uri` come from the document and are as untrusted as `text`. `content_hash` is of the chunk's text.
    `verdict` is the stored verdict of the injection scan: pass, flag, neutralise or quarantine; where it is not pass,
    `techniques` are what was found and `rules_version` names the rules that found it.
    """

    passage_id: str
    document_id: str
    title: UntrustedText
    uri: str
    text: UntrustedText
    position: int
    content_hash: str
    section_heading: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)
    verdict: str = "pass"
    techniques: tuple[str, ...] = ()
    rules_version: str = ""


@dataclass(frozen=True, slots=True)
class ScanFinding:
    """A passage that the injection scan did not simply pass, for trace and metrics; a verdict as in Passage."""

    passage_id: str
    verdict: str
    techniques: tuple[str, ...] = ()
    rules_version: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """What stands around a passage, read as a whole. `finding` is the scan's word on that whole, None where it passed.

    `text` is what may be shown of it: all, what is left without its hidden parts, or nothing where it was withheld.
    """

    text: UntrustedText
    finding: ScanFinding | None = None


@dataclass(frozen=True, slots=True)
class RetrievedPassage:
    """A passage with the scores that brought it.

    `score` is the fused score (0-1, comparable within one search). `dense_score` is the cosine similarity (-1..1) and
    `dense_rank` its place in the dense leg (0 = best), None where that leg did not return it; likewise `lexical_score`
    (BM25, >= 0) and `lexical_rank`. `rerank_score` is set by a reranker. `via` tells how it was
    found: search, link, read.
    """

    passage: Passage
    score: float
    dense_score: float | None = None
    dense_rank: int | None = None
    lexical_score: float | None = None
    lexical_rank: int | None = None
    rerank_score: float | None = None
    via: str = "search"


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Wall-clock seconds of the stages of one retrieval; a stage that did not run is 0."""

    dense: float = 0.0
    lexical: float = 0.0
    fuse: float = 0.0
    rerank: float = 0.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What one search brought: `passages` best first (at most k), and the head of the fused list for evidence.

    `candidates` holds the first `depth` (default 20) fused passages including those beyond k: the evidence features
    read them. `term_idf` maps each lexeme of the query to its inverse document frequency in the collection;
    `corpus_size` is the collection's number of passages. `vectors` is (len(candidates), d) float32, the embeddings of
    the candidates in their order, or None where the backend cannot give them. `withheld` are quarantined passages that
    the search came upon; their text is in none of the others.
    """

    passages: tuple[RetrievedPassage, ...]
    candidates: tuple[RetrievedPassage, ...] = ()
    term_idf: Mapping[str, float] = field(default_factory=dict)
    corpus_size: int = 0
    vectors: NDArray[np.float32] | None = None
    seconds: StageSeconds = StageSeconds()
    withheld: tuple[ScanFinding, ...] = ()


class Retriever(Protocol):
    """Finds passages: our own corpus, or a foreign table."""

    async def search(
        self,
        scope: Scope,
        text: str,
        vector: NDArray[np.float32],
        *,
        k: int,
        exclude: frozenset[str] = frozenset(),
    ) -> SearchResult:
        """Return up to `k` (1-100) passages for `text`, whose L2-normalised embedding is `vector` (d,).

        Passages whose id is in `exclude` do not count towards k. Raises NotFound for an unknown collection,
        FailedPrecondition where the collection was made with another embedder, DatabaseUnavailable.
        """
        ...

    async def search_many(
        self, scope: Scope, texts: Sequence[str], vectors: NDArray[np.float32], *, k: int
    ) -> list[SearchResult]:
        """Search for several texts at once, concurrently; one result a text, in order."""
        ...
