"""A run's checkpoint: what is written is what is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentic.actions import Proposal, Search
from agentic.checkpoint import RunSerializer
from agentic.settings import AgenticSettings, Limits
from agentic.state import Evidence, Fact, Held, IssuedQuery, Judgement, NextMove, RunState
from standard.domain.errors import FailedPrecondition
from standard.domain.passage import RetrievedPassage
from standard.domain.text import UntrustedText
from tests.support.memory_retriever import embed_text, passage

VECTOR = embed_text("wave limit of Petrel").tobytes()


def held(ref: int) -> Held:
    found = replace(passage(f"doc-{ref}", "Sailings stop at 40 knots."), metadata={"year": 2025, "tags": ["a", "b"]})
    return Held(ref, RetrievedPassage(found, 0.5), step=1)


def a_run() -> RunState:
    judgement = Judgement(
        step=1, score=0.5, sufficient=False, known=(Fact("it stops at 40 knots", (1,)),), missing=("which ship",),
        by="llm", next=NextMove("search", "wave limit of Petrel"),
    )  # fmt: skip
    return RunState(
        question=UntrustedText("When do sailings stop?"),
        settings=AgenticSettings(),
        limits=Limits(8, 10_000, 60.0, None, 1_000, 10.0, 0.0),
        evidence=Evidence((held(1), held(2))),
        judgements=(judgement,),
        queries=(IssuedQuery(1, "hybrid", "When do sailings stop?", vector=VECTOR),),
        proposal=Proposal(Search("wave limit of Petrel"), vectors=(VECTOR,)),
    )


@pytest.mark.parametrize("value", [a_run(), a_run().evidence])
def test_a_state_comes_back_as_it_was_kept(value: RunState | Evidence) -> None:
    serializer = RunSerializer()
    assert serializer.loads_typed(serializer.dumps_typed(value)) == value


def test_a_state_of_another_release_is_refused_with_a_way_out() -> None:
    with pytest.raises(FailedPrecondition, match="ask again"):
        RunSerializer().loads_typed(("pointsman-run-0", b"{}"))
