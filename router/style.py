"""How answers from a collection are written: its own settings, or those of the table behind its name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from classifier.language import reads_as_english
from standard.domain.answer import AnswerSource, Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from standard.domain.outcome import RouteResult
    from standard.domain.passage import Scope
    from standard.domain.question import AnswerStyle
    from standard.foreign.dispatch import Tables
    from standard.retrieval.directory import CollectionDirectory

NOT_TRANSLATED = (
    "The answer is made of sentences of the sources as they are: it could not be put into the language {0}."
)


def styles(tables: Tables, directory: CollectionDirectory) -> Callable[[Scope], Awaitable[AnswerStyle]]:
    """Return what looks a scope's style up; that raises NotFound and DatabaseUnavailable."""

    async def style_of(scope: Scope) -> AnswerStyle:
        table = tables.of(scope.tenant, scope.collection)
        return (await directory.view(scope.tenant, scope.collection)).style if table is None else table.style

    return style_of


def told_of(result: RouteResult, style: AnswerStyle) -> RouteResult:
    """The result, with a notice where its words are those of the sources and another language was asked for."""
    extracted = result.source is AnswerSource.EXTRACTIVE and result.outcome in (
        Outcome.ANSWERED,
        Outcome.ANSWERED_WITH_CAVEAT,
    )
    english = style.language.lower().split("-")[0] == "en"
    if not style.language or not extracted or (english and reads_as_english(result.text)):
        return result
    return replace(result, notices=(*result.notices, NOT_TRANSLATED.format(style.language)))
