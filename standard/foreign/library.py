"""What the agentic loop may do with a foreign table; plainer than over our own corpus where the table holds less.

There are no sentence vectors: a passage's own similarity takes their place. There are no sections: a passage comes with
its neighbours where document and position are mapped, else alone. Without a text index words are not looked up: a
search for keywords goes by their meaning, and no name is taken for unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg import sql

from standard.domain.errors import DeadlineExceeded, FailedPrecondition, NotFound
from standard.domain.passage import RetrievedPassage
from standard.foreign.conditions import column_sql, first_text
from standard.foreign.retriever import WORDS_SECONDS
from standard.foreign.statements import holds_all_sql
from standard.retrieval.links import names_in
from standard.retrieval.reader import MAX_NAMES, split_keywords
from standard.retrieval.retriever import searchable
from standard.retrieval.section import screened_section

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from standard.domain.passage import Passage, Scope, Section
    from standard.foreign.conditions import Condition
    from standard.foreign.retriever import ForeignRetriever
    from standard.foreign.view import TableView

NEIGHBOURS = 1
"""Passages read on either side; three times as many where the loop asks for what is around them."""
MOST_LINK_NAMES = 40
"""Names of the passages that are looked for in others."""


class ForeignLibrary:
    """Implements agentic.library.Library over one table."""

    def __init__(self, retriever: ForeignRetriever, *, scan_policy: str = "standard") -> None:
        self._retriever = retriever
        self._scan_policy = scan_policy

    async def search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        """Find passages by meaning and words."""
        return (await self._retriever.search(scope, text, vector, k=k)).passages

    async def keyword_search(self, scope: Scope, keywords: str, *, k: int) -> Sequence[RetrievedPassage]:
        """Find passages that hold the keywords, best first; without a text index, by the keywords' meaning.

        `score` is the share of the best score.
        """
        view = await self._retriever.view(scope.tenant)
        condition = self._retriever.condition(view, scope)
        wanted = " ".join(split_keywords(searchable(keywords)))
        if view.lexical is None:
            if not wanted:
                return ()
            vector = await self._retriever.embedder.embed(wanted)
            return (await self._retriever.search(scope, wanted, vector, k=k)).passages
        found = await self._retriever.words(view, condition, wanted, depth=k)
        best = max(found.leg.scores, default=0.0) or 1.0
        return await self._ordered(
            view,
            condition,
            [
                (key, score / best, {"lexical_score": score, "lexical_rank": rank})
                for rank, (key, score) in enumerate(zip(found.leg.keys, found.leg.scores, strict=True))
            ],
        )

    async def semantic_search(
        self, scope: Scope, text: str, vector: NDArray[np.float32], *, k: int
    ) -> Sequence[RetrievedPassage]:
        """Find passages by their own embedding, best first: there are no sentences to compare."""
        view = await self._retriever.view(scope.tenant)
        condition = self._retriever.condition(view, scope)
        found = await self._retriever.dense(view, condition, text, vector, depth=k, wanted=k)
        return await self._ordered(
            view,
            condition,
            [
                (key, min(1.0, max(0.0, found.cosine[key])), {"dense_score": found.cosine[key], "dense_rank": rank})
                for rank, key in enumerate(found.leg.keys)
            ],
        )

    async def find_linked(
        self, scope: Scope, passages: Sequence[Passage], *, question: str, vector: NDArray[np.float32], k: int
    ) -> Sequence[RetrievedPassage]:
        """Find passages of other documents that hold names standing in these, those of most and rarest names first."""
        view = await self._retriever.view(scope.tenant)
        if view.lexical is None or not passages:
            return ()
        names = names_in(passages, searchable(question)).names[:MOST_LINK_NAMES]
        titles = [passage.title.raw for passage in passages if passage.title.raw]
        if not names and not titles:
            return ()
        found = await self._retriever.search(
            scope,
            " ".join(dict.fromkeys([*names, *titles])),
            vector,
            k=min(100, k + len(passages) + 20),
            exclude=frozenset(passage.passage_id for passage in passages),
        )
        known = {passage.document_id for passage in passages}
        linked = [item for item in found.passages if item.passage.document_id not in known]
        return tuple(replace(item, via="link") for item in linked if item.lexical_rank is not None)[:k]

    async def read_section(self, scope: Scope, passage: Passage, *, neighbours: bool) -> Section:
        """Return the passage with its neighbours, where document and position are mapped; else the passage alone.

        What the scan withholds is left out, of the whole too. Raises NotFound where the passage is gone.
        """
        view = await self._retriever.view(scope.tenant)
        condition = self._retriever.condition(view, scope)
        keys = [passage.passage_id]
        if view.mapping.document_id and view.mapping.position and passage.document_id != passage.passage_id:
            around = NEIGHBOURS * (3 if neighbours else 1)
            keys = await self._neighbours(view, condition, passage, around) or keys
        found, _ = await self._retriever.read(view, condition, keys)
        if passage.passage_id not in found:
            raise NotFound("the passage is no longer in the table; search again")
        kept = [found[key] for key in keys if key in found and found[key].verdict != "quarantine"]
        section = "\n\n".join(item.text.raw for item in kept)
        return await screened_section(passage.passage_id, section, self._scan_policy)

    async def mentioned(self, scope: Scope, names: Sequence[str]) -> frozenset[str]:
        """Return those names whose words all stand in one passage; all of them where words cannot be looked up."""
        view = await self._retriever.view(scope.tenant)
        lexical = view.lexical
        if lexical is None or lexical.kind == "trigram":
            return frozenset(names)
        condition = self._retriever.condition(view, scope)
        by_text = {searchable(name): name for name in names[:MAX_NAMES]}
        try:
            async with self._retriever.reading(WORDS_SECONDS) as conn:
                parameters = {**condition.parameters, "names": list(by_text)}
                statement = holds_all_sql(view, lexical, condition)
                rows = await (await conn.execute(statement, parameters, prepare=False)).fetchall()
        except DeadlineExceeded:
            return frozenset(names)
        return frozenset(by_text[row[0]] for row in rows)

    async def _ordered(
        self, view: TableView, condition: Condition, found: Sequence[tuple[str, float, dict[str, float]]]
    ) -> tuple[RetrievedPassage, ...]:
        passages, _ = await self._retriever.read(view, condition, [key for key, _, _ in found])
        return tuple(
            RetrievedPassage(passage, score, **legs)  # type: ignore[arg-type]
            for key, score, legs in found
            if (passage := passages.get(key)) is not None and passage.verdict != "quarantine"
        )

    async def _neighbours(self, view: TableView, condition: Condition, passage: Passage, around: int) -> list[str]:
        columns, mapping = view.table.columns, view.mapping
        statement = sql.SQL(
            "select id from (select {id}::text as id, {position} as position from {table} t"
            " where {document} = {wanted} and {condition} limit 10000) held"
            " where position ~ '^[0-9]{{1,9}}$' and position::int between {first} and {last}"
            " order by position::int, id"
        ).format(
            id=column_sql(mapping.id),
            position=first_text(mapping.position, columns),
            table=view.table.relation,
            document=first_text(mapping.document_id, columns),
            wanted=sql.Placeholder("document"),
            condition=condition.clause,
            first=sql.Placeholder("first"),
            last=sql.Placeholder("last"),
        )
        parameters = {
            **condition.parameters,
            "document": passage.document_id,
            "first": max(0, passage.position - around),
            "last": passage.position + around,
        }
        try:
            async with self._retriever.reading(WORDS_SECONDS) as conn:
                rows = await (await conn.execute(statement, parameters, prepare=False)).fetchall()
        except (DeadlineExceeded, FailedPrecondition):
            # no index on the document's id and a large table, or a value that cannot be read: the passage alone
            return []
        keys = [str(row[0]) for row in rows]
        return keys if passage.passage_id in keys else []
