"""One step onward from what is held, without any model: three looks at the collection, ranked as one.

What a second hop needs stands in three places: further down the question's own ranking, in documents that the best
sources name, and near the question once it is read together with the best source. None of the three is best everywhere,
so the step takes them together, prefers documents that the run does not hold yet, and ranks these by what the sources
leave open (`agentic.next_hop`). In a small collection every document names the same few things, and links lead
anywhere: there they are left out, and the two other looks are fused by rank.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from agentic.coverage import content_terms
from agentic.embedding import vector_of
from agentic.guards.dedup import fetch_size
from agentic.next_hop.scoring import RANK_OFFSET, Looks, next_hops, shipped_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentic.library import Library
    from agentic.state import Held, RunState
    from standard.domain.passage import RetrievedPassage, Scope

FURTHER, LINKED, SECOND_LOOK = 1.0, 1.25, 0.75
"""Weights of the question's own ranking, of links, and of the question read with the best source, where ranks are all
that is fused."""
SMALL_COLLECTION = 2_000
"""Passages up to which links are left out."""
_DEPTH = 30
_SOURCE_LENGTH = 300
"""Code points of the best source that a second look reads with the question."""


def second_look(state: RunState, refs: Sequence[int]) -> str:
    """The question with the beginning of the first of the sources; the question alone without any."""
    best = state.evidence.by_ref(refs[0]) if refs else None
    return state.question.raw if best is None else f"{state.question.raw} {best.passage.text.raw[:_SOURCE_LENGTH]}"


async def explore(
    state: RunState, refs: Sequence[int], look: bytes, library: Library, scope: Scope
) -> list[RetrievedPassage]:
    """Passages of the three looks, best first; `look` is the embedding of `second_look`. Marked as found by link."""
    sources = [held for ref in refs if (held := state.evidence.by_ref(ref)) is not None]
    question, vector = state.question.raw, vector_of(state.queries[0].vector)
    depth = max(_DEPTH, fetch_size(state.top_k, state.evidence))
    followed = [] if 0 < state.corpus_size <= SMALL_COLLECTION else sources
    async with asyncio.TaskGroup() as group:
        further = group.create_task(library.search(scope, question, vector, k=depth))
        linked = group.create_task(_linked(followed, library, scope, state, depth))
        near = group.create_task(library.search(scope, second_look(state, refs), vector_of(look), k=depth))
    looks = Looks(further.result(), linked.result(), near.result())
    ranked = fuse([looks.further, looks.linked, looks.near], [FURTHER, LINKED, SECOND_LOOK])
    documents = {item.passage.document_id for item in state.evidence.held}
    if followed:
        need = " ".join([question, *(reply.answer.raw for reply in state.replies)])
        terms = content_terms(need, dict(state.term_idf))
        passages = [held.passage for held in followed]
        hops = next_hops(terms, passages, looks, documents, shipped_weights())
        ranked = hops + [item for item in ranked if item.passage.document_id in documents]
    return [replace(item, via="link") for item in new_documents_first(ranked, documents)]


async def _linked(
    sources: Sequence[Held], library: Library, scope: Scope, state: RunState, depth: int
) -> Sequence[RetrievedPassage]:
    if not sources:
        return []
    passages = [held.passage for held in sources]
    vector = vector_of(state.queries[0].vector)
    return await library.find_linked(scope, passages, question=state.question.raw, vector=vector, k=depth)


def fuse(lists: Sequence[Sequence[RetrievedPassage]], weights: Sequence[float]) -> list[RetrievedPassage]:
    """Weighted reciprocal rank fusion; a passage keeps the scores of the list that has it first."""
    score: dict[str, float] = {}
    found: dict[str, RetrievedPassage] = {}
    for passages, weight in zip(lists, weights, strict=True):
        for rank, item in enumerate(passages):
            name = item.passage.passage_id
            score[name] = score.get(name, 0.0) + weight / (RANK_OFFSET + rank)
            found.setdefault(name, item)
    return [found[name] for name in sorted(score, key=lambda name: -score[name])]


def new_documents_first(ranked: Sequence[RetrievedPassage], held: set[str]) -> list[RetrievedPassage]:
    """The first passage of each document that is not held, in order; then everything else, in order."""
    seen = set(held)
    first: list[RetrievedPassage] = []
    rest: list[RetrievedPassage] = []
    for item in ranked:
        document = item.passage.document_id
        (rest if document in seen else first).append(item)
        seen.add(document)
    return first + rest
