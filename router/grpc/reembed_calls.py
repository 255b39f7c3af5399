"""CorpusService: the calls of a change of embedder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf import timestamp_pb2
from pointsman.v1 import corpus_pb2, corpus_pb2_grpc

from router.grpc.errors import abort
from router.grpc.validate import collection_name, question_text
from router.reembed import Wanted
from standard.corpus.reembed.compare import Asked
from standard.domain.errors import InvalidInput
from standard.unicode import encodable as text

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from router.access.identity import Identity
    from router.grpc.calls import Context
    from router.reembed import Reembeddings, Step
    from router.settings import LimitSettings
    from standard.corpus.reembed.compare import Comparison
    from standard.corpus.reembed.state import Reembedding, Side
    from standard.foreign.dispatch import Tables

MAX_QUESTIONS: Final = 200
_MAX_SUPPORTING: Final = 100
_MAX_K: Final = 50
_STATES: Final = {
    "building": corpus_pb2.REEMBEDDING_STATE_BUILDING,
    "paused": corpus_pb2.REEMBEDDING_STATE_PAUSED,
    "ready": corpus_pb2.REEMBEDDING_STATE_READY,
    "switched": corpus_pb2.REEMBEDDING_STATE_SWITCHED,
}
_STEPS: Final[dict[int, Step]] = {
    corpus_pb2.REEMBEDDING_ACTION_SWITCH: "switch",
    corpus_pb2.REEMBEDDING_ACTION_ROLL_BACK: "roll_back",
    corpus_pb2.REEMBEDDING_ACTION_FINISH: "finish",
    corpus_pb2.REEMBEDDING_ACTION_CANCEL: "cancel",
}


class ReembeddingCalls(corpus_pb2_grpc.CorpusServiceServicer):
    """The part of CorpusService that changes embedders; needs the role admin, as all that writes does."""

    def __init__(
        self,
        reembeddings: Reembeddings,
        limits: LimitSettings,
        identify: Callable[[Context], Identity],
        tables: Tables,
    ) -> None:
        self._reembeddings = reembeddings
        self._limits = limits
        self._identify = identify
        self._tables = tables

    def _changer(self, context: Context, given: str, act: str) -> tuple[Identity, str]:
        """Who calls and the collection that is meant."""
        identity = self._identify(context)
        identity.require("admin")
        name = identity.admitted(collection_name(given))
        self._tables.refuse(identity.tenant, name, act)
        return identity, name

    async def StartReembedding(  # noqa: N802 - the RPC's name
        self, request: corpus_pb2.StartReembeddingRequest, context: Context
    ) -> corpus_pb2.StartReembeddingResponse:
        """Begin a change, or go on with it."""
        try:
            identity, name = self._changer(context, request.collection, "change the embedder")
            wanted = Wanted(request.model, request.base_url, request.dimensions, request.max_tokens)
            change, needed = await self._reembeddings.start(identity, name, wanted)
            return corpus_pb2.StartReembeddingResponse(
                reembedding=reembedding_message(change), disk_bytes_needed=needed
            )
        except Exception as error:  # noqa: BLE001 - the edge: every error is mapped once
            await abort(context, error)

    async def GetReembedding(  # noqa: N802
        self, request: corpus_pb2.GetReembeddingRequest, context: Context
    ) -> corpus_pb2.GetReembeddingResponse:
        """How far a change is."""
        try:
            identity, name = self._changer(context, request.collection, "get a change of embedder")
            change, entries = await self._reembeddings.get(identity.tenant, name)
            return corpus_pb2.GetReembeddingResponse(
                reembedding=reembedding_message(change),
                changes=[
                    corpus_pb2.ReembeddingEntry(
                        action=each.action,
                        from_embedder_id=each.from_embedder,
                        to_embedder_id=each.to_embedder,
                        time=_timestamp(each.changed_at),
                        changed_by=each.changed_by,
                    )
                    for each in entries
                ],
            )
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def CompareReembedding(  # noqa: N802
        self, request: corpus_pb2.CompareReembeddingRequest, context: Context
    ) -> corpus_pb2.CompareReembeddingResponse:
        """Compare both generations."""
        try:
            identity, name = self._changer(context, request.collection, "compare embedders")
            if len(request.questions) > MAX_QUESTIONS:
                raise InvalidInput("questions", f"at most {MAX_QUESTIONS} can be compared at once")
            if not 0 <= request.top_k <= _MAX_K:
                raise InvalidInput("top_k", f"must be 1 to {_MAX_K}; 0 = 10")
            if not 0 <= request.sample <= MAX_QUESTIONS:
                raise InvalidInput("sample", f"must be 1 to {MAX_QUESTIONS}; 0 = 50")
            asked = [self._asked(each, index) for index, each in enumerate(request.questions)]
            found = await self._reembeddings.compare(
                identity, name, asked, k=request.top_k or 10, sample=request.sample or 50
            )
            return comparison_message(found, is_sample=not asked)
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    def _asked(self, given: corpus_pb2.CompareReembeddingRequest.Question, index: int) -> Asked:
        if len(given.supporting_ids) > _MAX_SUPPORTING:
            raise InvalidInput(f"questions[{index}].supporting_ids", f"at most {_MAX_SUPPORTING} ids")
        asked = question_text(given.text, f"questions[{index}].text", self._limits)
        return Asked(asked.raw, frozenset(given.supporting_ids))

    async def ChangeReembedding(  # noqa: N802
        self, request: corpus_pb2.ChangeReembeddingRequest, context: Context
    ) -> corpus_pb2.ChangeReembeddingResponse:
        """Switch, roll back, finish or cancel."""
        try:
            identity, name = self._changer(context, request.collection, "change the embedder")
            step = _STEPS.get(request.action)
            if step is None:
                raise InvalidInput("action", f"{request.action} is none of {', '.join(_STEPS.values())}")
            change = await self._reembeddings.step(identity, name, step)
            return corpus_pb2.ChangeReembeddingResponse(reembedding=reembedding_message(change))
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)


def reembedding_message(change: Reembedding) -> corpus_pb2.Reembedding:
    """A change on the wire."""
    return corpus_pb2.Reembedding(
        collection=change.name,
        state=_STATES[change.state],
        new=_generation(change.new),
        former=_generation(change.former),
        documents=change.documents,
        remaining=change.remaining,
        passages_per_second=change.rate,
        problem=text(change.problem),
        next_attempt_time=_timestamp(change.attempt_at) if change.problem else None,
        start_time=_timestamp(change.started_at),
        started_by=change.started_by,
        switch_time=_timestamp(change.switched_at) if change.switched_at else None,
    )


def _generation(side: Side) -> corpus_pb2.EmbeddedGeneration:
    return corpus_pb2.EmbeddedGeneration(
        embedder_id=side.embedder.id,
        dimensions=side.embedder.dimensions,
        passage_count=side.passages,
        disk_bytes=side.disk_bytes,
    )


def comparison_message(found: Comparison, *, is_sample: bool) -> corpus_pb2.CompareReembeddingResponse:
    """A comparison on the wire."""
    return corpus_pb2.CompareReembeddingResponse(
        questions=found.questions,
        overlap=found.overlap,
        judged=found.judged,
        former_recall=found.former_recall,
        new_recall=found.new_recall,
        better=found.better,
        worse=found.worse,
        former_seconds=found.former_seconds,
        new_seconds=found.new_seconds,
        sampled=is_sample,
        differences=[
            corpus_pb2.CompareReembeddingResponse.Difference(
                question=text(each.question), overlap=each.overlap, former_ids=each.former, new_ids=each.new
            )
            for each in found.differences
        ],
    )


def _timestamp(moment: dt.datetime) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp
