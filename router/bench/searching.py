"""Embedding a question, and searching with it: beside the bare SQL that a search cannot do without."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from router.bench.figure import Figure, Figures, Goals, Report, percentiles
from router.bench.load import QUESTIONS
from router.bench.statements import bare_search, run_bare
from router.percentile import percentile
from standard.domain.passage import Scope

if TYPE_CHECKING:
    from router.application import Application

_WARM_UP = 0.1
"""Share of the searches that come first and do not count."""


async def embedding_figures(application: Application, count: int, report: Report) -> Figures:
    """Embed `count` questions."""
    report("embedding a question")
    times: list[float] = []
    for number in range(count):
        at = time.perf_counter()
        await application.embed(QUESTIONS[number % len(QUESTIONS)])
        times.append(time.perf_counter() - at)
    return percentiles("embed", times, "one question of 8 to 12 tokens, in process", Goals(2.0))


async def search_figures(application: Application, name: str, size: int, count: int, report: Report) -> Figures:
    """Search the collection `name` of `size` passages `count` times, and run its bare statements in turns."""
    report(f"searching {size} passages, and its bare statements in turns")
    scope = Scope(collection=name)
    pool, retriever = application.pool, application.retriever
    vectors = [await application.embed(question) for question in QUESTIONS]
    statements = [
        await bare_search(retriever, scope, question, vector)
        for question, vector in zip(QUESTIONS, vectors, strict=True)
    ]
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(count):
        place = number % len(QUESTIONS)
        at = time.perf_counter()
        await retriever.search(scope, QUESTIONS[place], vectors[place], k=5)
        between = time.perf_counter()
        await run_bare(pool, statements[place])
        times["ours"].append(between - at)
        times["bare"].append(time.perf_counter() - between)
    first = int(count * _WARM_UP)
    what = f"both legs and fusion over {size} passages, in process, warm"
    figures = percentiles(f"retrieve_{size}", times["ours"][first:], what)
    bare = percentile(sorted(times["bare"][first:]), 0.5)
    ours = percentile(sorted(times["ours"][first:]), 0.5)
    figures[f"statements_{size}_p50_ms"] = Figure(bare * 1e3, "ms", "the same SQL alone, rows fetched and dropped")
    figures[f"retrieve_{size}_over_sql"] = Figure(
        ours / bare, "x", "the search over its bare statements, in turns", 1.3
    )
    return figures
