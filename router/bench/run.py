"""`pointsman bench`: every figure of one run, measured side by side on one machine."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from router.application import open_application
from router.bench.added import added_figures
from router.bench.answering import curve_figures, start_figures
from router.bench.cancelling import cancel_figures
from router.bench.conditions import guarded, open_caller
from router.bench.corpora import fill
from router.bench.costs import cost_figures
from router.bench.deciding import decision_figures
from router.bench.ingesting import ingest_figures
from router.bench.processes import output_of
from router.bench.proxying import Whole, proxy_figures
from router.bench.searching import embedding_figures, search_figures
from router.bench.standin import open_standin
from router.bench.streaming import stream_figures
from router.process.serving import open_grpc, open_http_beside
from standard.domain.errors import FailedPrecondition, InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from router.application import Application
    from router.bench.callers import Caller
    from router.bench.figure import Figures, Report
    from router.bench.standin import Standin
    from router.settings import Settings

STEPS: Final = 19
"""How often `report` is told of something new, beside once a size and once a number of connections."""
_PEERS: Final = ("litellm", "semantic_router")
_FIND_SECONDS: Final = 30.0
_WITHOUT_MODEL: Final = {
    "search": ("search", "SearchPassages"),
    "classify": ("classify", "Classify, from the text alone"),
    "standard_extractive": ("standard", "Answer on the standard route without a model"),
    "agentic_by_rules": ("agentic", "Answer on the agentic route without a model"),
}
_WITH_MODEL: Final = {
    "standard": ("standard", "Answer on the standard route with a model that answers at once"),
    "agentic": ("agentic", "Answer on the agentic route with such a model, three steps"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and for how long.

    `sizes` are passages of the synthetic collections (the first is the one that questions go to), `seconds` the length
    of each load, `rounds` how often what is compared takes turns, `words` those of a paced stream. `corpus` holds the
    documents of which `documents` are made for ingest. `peers` is a Python that has LiteLLM and semantic-router; None
    leaves both out. `questions` is how many labelled ones are decided, 0 = all.
    """

    corpus: Path
    sizes: tuple[int, ...] = (7000, 100_000)
    seconds: float = 6.0
    rounds: int = 3
    connections: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    embeddings: int = 300
    searches: int = 200
    words: int = 40
    cancellations: int = 30
    documents: int = 200
    questions: int = 0
    peers: Path | None = None

    @property
    def steps(self) -> int:
        """How often `report` is told of something new."""
        return STEPS + 2 * len(self.sizes) + len(self.connections) + (2 if self.peers is not None else 0)


def quick_plan(corpus: Path, *, peers: Path | None = None) -> Plan:
    """Everything, in a small slice that tells whether it works and nothing about speed."""
    return Plan(
        corpus,
        sizes=(300,),
        seconds=0.3,
        rounds=1,
        connections=(1, 4),
        embeddings=10,
        searches=10,
        words=8,
        cancellations=2,
        documents=6,
        questions=200,
        peers=peers,
    )


async def run_bench(settings: Settings, plan: Plan, *, report: Report = lambda _: None) -> Figures:
    """Measure everything.

    Raises InvalidInput for a Python without the peers, FailedPrecondition where a process that it starts fails, and
    what the parts raise.
    """
    figures: Figures = {}
    if plan.peers is not None:
        await require_peers(plan.peers)
    async with open_standin() as standin:
        async with AsyncExitStack() as stack:
            application = await stack.enter_async_context(open_application(guarded(settings, standin)))
            figures |= await _without_model(application, plan, standin, stack, report)
        async with AsyncExitStack() as stack:
            application = await stack.enter_async_context(open_application(guarded(settings, standin, model=True)))
            figures |= await _with_model(application, plan, standin, stack, report)
        figures |= await start_figures(f"bench-{plan.sizes[0]}", min(plan.seconds, 2.0), report)
    return figures


async def require_peers(python: Path) -> None:
    """Raise InvalidInput where a Python has not both peers, before anything is measured; imports neither."""
    find = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
    try:
        await output_of(str(python), "-c", find, *_PEERS, seconds=_FIND_SECONDS)
    except FailedPrecondition:
        wanted = " and ".join(_PEERS)
        raise InvalidInput("peers", f"{python} has not {wanted}; `make bench-peers` makes one that has") from None


async def _without_model(
    application: Application, plan: Plan, standin: Standin, stack: AsyncExitStack, report: Report
) -> Figures:
    models, dimensions = application.models.current(), application.embedder.dimensions
    figures = await added_figures(application.settings, standin, models, dimensions, plan.seconds, plan.rounds, report)
    figures |= await embedding_figures(application, plan.embeddings, report)
    for size in plan.sizes:
        report(f"filling a collection of {size} passages (once a data directory)")
        name = await fill(application.pool, application.embedder, size)
        figures |= await search_figures(application, name, size, plan.searches, report)
    figures |= await decision_figures(application, plan.peers, plan.questions, report)
    figures |= await ingest_figures(application, plan.corpus, plan.documents, report)
    caller = await stack.enter_async_context(open_caller(application.pool))
    port = await stack.enter_async_context(open_grpc(application, port=0))
    target, collection = f"127.0.0.1:{port}", f"bench-{plan.sizes[0]}"
    figures |= await curve_figures(target, caller, collection, plan.connections, plan.seconds, report)
    return figures | await cost_figures(
        application.pool, target, caller, collection, _WITHOUT_MODEL, plan.seconds, report
    )


async def _with_model(
    application: Application, plan: Plan, standin: Standin, stack: AsyncExitStack, report: Report
) -> Figures:
    caller: Caller = await stack.enter_async_context(open_caller(application.pool))
    port = await stack.enter_async_context(open_grpc(application, port=0))
    http = await stack.enter_async_context(open_http_beside(application, port=0))
    target, collection, pool = f"127.0.0.1:{port}", f"bench-{plan.sizes[0]}", application.pool
    figures = await cost_figures(pool, target, caller, collection, _WITH_MODEL, plan.seconds, report)
    figures |= await stream_figures(target, caller, collection, standin, plan.words, plan.seconds, report)
    figures |= await cancel_figures(target, caller, collection, standin, pool, plan.cancellations, report)
    whole = Whole(http, caller, collection)
    return figures | await proxy_figures(
        application, whole, standin, plan.peers, plan.words, plan.seconds, plan.rounds, report
    )
