"""What a checkpoint holds: everything, as data, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic.actions import Ask, Branch, FindLinked, Finish, Malformed, Plan, Proposal, Read, Search, SearchEach
from agentic.checkpoint import RunSerializer, thread_of
from agentic.settings import AgenticSettings, resolve_limits
from agentic.state import (
    BranchResult,
    Ending,
    Evidence,
    Fact,
    Held,
    IssuedQuery,
    Judgement,
    NextMove,
    Refusal,
    Reply,
    RunState,
    Summary,
)
from standard.domain.answer import AnswerSource, Citation, Outcome, StopReason, Usage
from standard.domain.errors import FailedPrecondition
from standard.domain.outcome import RouteResult
from standard.domain.passage import RetrievedPassage
from standard.domain.question import Budget, Turn
from standard.domain.text import UntrustedText
from tests.support.memory_retriever import passage

serde = RunSerializer()
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
actions = st.one_of(
    st.builds(Search, query=text, mode=st.sampled_from(("hybrid", "keyword", "semantic"))),
    st.builds(SearchEach, searches=st.lists(st.builds(Search, query=text), max_size=3).map(tuple)),
    st.builds(FindLinked, refs=st.lists(st.integers(0, 99), max_size=3).map(tuple)),
    st.builds(Read, ref=st.integers(0, 99)),
    st.builds(Plan, branches=st.lists(st.builds(Branch, id=text, question=text), max_size=3).map(tuple)),
    st.builds(Ask, question=text),
    st.builds(Finish, belief=st.just("partial")),
    st.builds(Malformed, problem=text),
)


def full_state(note: str, proposal: Proposal | None) -> RunState:
    settings = AgenticSettings()
    return RunState(
        question=UntrustedText(note),
        limits=resolve_limits(settings, Budget(max_steps=3)),
        settings=settings,
        history=(Turn("user", UntrustedText(note)),),
        term_idf=((note, 2.5),),
        steps=2,
        queries=(IssuedQuery(1, "hybrid", note, b"\x00\xff\x80", 3, 1, "b1"),),
        judgements=(
            Judgement(
                1, 0.5, sufficient=False, known=(Fact(note, (1,)),), missing=(note,), next=NextMove("search", note)
            ),
        ),
        refusals=(Refusal(2, "query_similarity", "search", note),),
        refused_in_row=1,
        dropped_queries=(note,),
        proposal=proposal,
        plan=(Branch("b1", note, ("b0",)),),
        branch_results=(BranchResult("b1", note, note, (1,)),),
        summary=Summary((Fact(note),), (note,), (Fact(note),), 2),
        replies=(Reply(note, UntrustedText(note)),),
        usage=Usage(1, 2, 3, 4, 5, 0.6),
        llm_failed="timeout",
        notices=(note,),
        ending=Ending(StopReason.NO_PROGRESS, "partial", note),
    )


@given(text, st.none() | st.builds(Proposal, action=actions, vectors=st.just((b"\x00\x01\xfe",))))
def test_a_state_comes_back_as_it_was(note: str, proposal: Proposal | None) -> None:
    state = full_state(note, proposal)
    assert serde.loads_typed(serde.dumps_typed(state)) == state


@given(text)
def test_passages_and_results_come_back_as_they_were(note: str) -> None:
    found = RetrievedPassage(replace(passage("d", note), metadata={"a": 1, "b": ["x"]}), 0.5, dense_rank=3, via="link")
    evidence = Evidence((Held(1, found, 1, full=False, dropped=True, relevant=False, section=UntrustedText(note)),))
    assert serde.loads_typed(serde.dumps_typed(evidence)) == evidence
    citation = Citation("d#0", "d", note, "u", note, 0, 1, 0, 1)
    result = RouteResult(note, AnswerSource.GENERATED, Outcome.ANSWERED, StopReason.SUFFICIENT, (citation,))
    assert serde.loads_typed(serde.dumps_typed(result)) == result


def test_what_a_table_holds_never_becomes_code() -> None:
    kind, data = serde._rest.dumps_typed({"a": 1})
    assert serde.loads_typed((kind, data)) == {"a": 1}
    named = serde._rest.dumps_typed(UntrustedText("built by whoever writes the table"))
    assert not isinstance(serde.loads_typed(named), UntrustedText)


def test_a_state_of_another_release_is_refused_by_name() -> None:
    with pytest.raises(FailedPrecondition, match="another release"):
        serde.loads_typed(("pointsman-run-99", b"{}"))
    with pytest.raises(FailedPrecondition, match="cannot be read"):
        serde.loads_typed(("pointsman-run-1", b'{"question": 7}'))


def test_threads_of_two_tenants_never_meet() -> None:
    assert thread_of("a:b", "c") != thread_of("a", "b:c")
