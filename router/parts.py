"""What the gateway is made of, as the gateway sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from classifier.drift import Reference
    from classifier.explain import Explanation
    from router.access.limits import TenantLimits
    from router.decide import Signals
    from router.journal.store import Journal
    from router.rollout.shadow import Shadow
    from router.routing.evidence import EmbeddedParts
    from router.routing.models import TextReading
    from router.routing.policy import PolicyStore
    from router.settings import Settings
    from router.telemetry.drift import DriftWatch
    from router.telemetry.metrics import Metrics
    from standard.domain.event import Emit
    from standard.domain.outcome import RouteResult
    from standard.domain.passage import Retriever, Scope, SearchResult
    from standard.domain.question import AnswerStyle, Question
    from standard.sandbox.guarded_llm import GuardedLlm


class RoutingModels(Protocol):
    """The text and the evidence model, as the gateway sees them."""

    @property
    def version(self) -> str:
        """Version of the artifact."""
        ...

    @property
    def reference(self) -> Reference | None:
        """What live traffic is compared with; None for a model that was made without."""
        ...

    @property
    def knows_vectors(self) -> bool:
        """Whether the reference is of the embedder in use."""
        ...

    async def read(self, question: Question) -> TextReading:
        """Read the question's text."""
        ...

    def text_signals(self, reading: TextReading) -> Signals:
        """What the text alone says."""
        ...

    async def embed_parts(self, question: Question) -> EmbeddedParts | None:
        """Embed the parts of a question that `signals` compares with a first retrieval; needs none itself."""
        ...

    async def signals(
        self,
        reading: TextReading,
        vector: NDArray[np.float32],
        first: SearchResult,
        embedded: EmbeddedParts | None = None,
    ) -> Signals:
        """What text and first retrieval say together."""
        ...

    async def explain(
        self, reading: TextReading, vector: NDArray[np.float32] | None = None, first: SearchResult | None = None
    ) -> Explanation:
        """What moved the probability; the text's alone without a first retrieval and its vector."""
        ...


class RouteHandler(Protocol):
    """A route: answers a question from its first retrieval, emitting events on the way."""

    async def __call__(
        self, question: Question, vector: NDArray[np.float32], first: SearchResult, *, emit: Emit, may_escalate: bool
    ) -> RouteResult:
        """Answer; with `may_escalate` the standard route may hand over instead of answering."""
        ...


class ResumeHandler(Protocol):
    """Goes on with a run of the agentic route from its checkpoint."""

    async def __call__(self, question: Question, *, emit: Emit, replies: Sequence[str]) -> RouteResult:
        """Answer; `replies` are all the user's answers to the run's clarifications so far, in order.

        Raises FailedPrecondition where there is nothing that it could go on from, AlreadyExists where the run is of
        another question or went on with another reply.
        """
        ...


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """What the gateway is made of.

    `llm` condenses follow-ups, a rule does where it is None. `style` looks up how a collection's answers are written,
    None where none says so. `models` returns None while no routing model is ready; `resume` is None where no
    checkpoints are kept: a run can't wait for its user then. `drift` is None where nobody watches the traffic, `limits`
    where nobody is held to any, `shadow` where nothing is answered aside.
    """

    embed: Callable[[str], Awaitable[NDArray[np.float32]]]
    retriever: Retriever
    models: Callable[[], RoutingModels | None]
    standard: RouteHandler
    agentic: RouteHandler
    has_llm: bool
    journal: Journal
    policies: PolicyStore
    metrics: Metrics
    settings: Settings
    resume: ResumeHandler | None = None
    drift: DriftWatch | None = None
    limits: TenantLimits | None = None
    shadow: Shadow | None = None
    style: Callable[[Scope], Awaitable[AnswerStyle]] | None = None
    llm: GuardedLlm | None = None
