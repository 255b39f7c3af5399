"""The journal over the real database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from router.journal.store import Journal
from standard.domain.answer import Answer, AnswerSource, Decision, DecisionReason, Outcome, StopReason
from standard.domain.errors import NotFound, Unavailable
from standard.domain.event import Completed, DecisionMade, Event, TokenEmitted
from standard.domain.question import Route

if TYPE_CHECKING:
    from router.journal.codec import Consent
    from standard.database.pool import Pool

DECISION = Decision(Route.STANDARD, DecisionReason.EVIDENCE, 0.25, 0.5)
ANSWER = Answer(
    "r1",
    "The pump is ashore.",
    AnswerSource.GENERATED,
    Outcome.ANSWERED,
    StopReason.SUFFICIENT,
    Route.STANDARD,
    DECISION,
)
EVENTS = [
    Event(1, DecisionMade(DECISION), "Taking the standard route"),
    Event(2, TokenEmitted("The pump\x00 is ashore.")),
    Event(3, Completed(ANSWER), "Done"),
]


def journal(pool: Pool, consent: Consent = "text") -> Journal:
    return Journal(pool, consent=consent, owner="test")


async def test_a_run_is_begun_once(pool: Pool) -> None:
    store = journal(pool)
    first = await store.begin("default", "r1", "hash", {"question": "where\x00?"}, "s1")
    again = await store.begin("default", "r1", "other", None, "")
    elsewhere = await store.begin("other", "r1", "hash", None, "")
    assert [bool(run.owner) for run in (first, again, elsewhere)] == [True, False, True]
    assert (again.run_id, again.body_hash, again.state) == (first.run_id, "hash", "running")


async def test_events_come_back_in_order_and_from_where_one_asks(pool: Pool) -> None:
    store = journal(pool)
    begun = await store.begin("default", "r1", "hash", None, "")
    await store.append(begun, EVENTS[:2])
    await store.append(begun, EVENTS[2:], state="done")
    stored = await store.load("default", "r1")
    assert stored is not None
    assert stored.state == "done"
    replayed = store.events(stored)
    assert [event.sequence for event in replayed] == [1, 2, 3]
    assert replayed[0] == EVENTS[0]
    assert replayed[1].body == TokenEmitted("The pump\ufffd is ashore.")
    assert replayed[2] == EVENTS[2]
    later = await store.load("default", "r1", after_sequence=2)
    assert later is not None
    assert [entry.sequence for entry in later.entries] == [3]


async def test_appending_twice_changes_nothing(pool: Pool) -> None:
    store = journal(pool)
    begun = await store.begin("default", "r1", "hash", None, "")
    await store.append(begun, EVENTS)
    await store.append(begun, EVENTS, state="done")
    stored = await store.load("default", "r1")
    assert stored is not None
    assert len(stored.entries) == 3


async def test_another_tenant_sees_nothing(pool: Pool) -> None:
    store = journal(pool)
    await store.begin("default", "r1", "hash", None, "")
    assert await store.load("other", "r1") is None
    assert await store.erase("other", "r1") == 0
    assert not await store.add_feedback("other", "r1", 1.0, "", "")


async def test_without_consent_no_text_reaches_the_table(pool: Pool) -> None:
    store = journal(pool, "nothing")
    begun = await store.begin("default", "r1", "hash", None, "")
    await store.append(begun, EVENTS, state="done")
    async with pool.connection() as connection:
        cursor = await connection.execute("select string_agg(body::text, ' ') from run_events")
        row = await cursor.fetchone()
    assert row is not None
    assert "pump" not in row[0]


async def test_erasing_a_run_takes_what_later_runs_of_its_session_took_over_of_it(pool: Pool) -> None:
    store = journal(pool)
    for number, session in enumerate(["s1", "s1", "s2"]):
        kept = {"question": "And who signs for it?", "standalone": "Who signs for the pump?"}
        begun = await store.begin("default", f"r{number}", "hash", kept, session)
        await store.append(begun, EVENTS, state="done")
    async with pool.connection() as connection:
        await connection.execute(
            "insert into checkpoints (thread_id, checkpoint_id, checkpoint) values ('default/r1', '1', '{}'), "
            "('default/r2', '1', '{}')"
        )
    assert await store.erase("default", "r0") == 1
    async with pool.connection() as connection:
        runs = await (
            await connection.execute("select request_id, question ? 'standalone' from run order by run_id")
        ).fetchall()
        threads = await (await connection.execute("select thread_id from checkpoints")).fetchall()
    assert runs == [("r1", False), ("r2", True)]
    assert threads == [("default/r2",)]


async def test_a_session_is_read_as_it_stood_before_a_run(pool: Pool) -> None:
    store = journal(pool)
    for number in range(4):
        begun = await store.begin("default", f"r{number}", "hash", {"question": f"{number}?"}, "s1")
        await store.append(begun, EVENTS, state="done")

    async def read(before: str, limit: int = 3) -> list[str]:
        return [(asked or {})["question"] for asked, _ in await store.session("default", "s1", before, limit)]

    assert await read("r2") == ["0?", "1?"]
    assert await read("not-kept") == ["1?", "2?", "3?"]
    assert await read("not-kept", limit=1) == ["3?"]


async def test_erasing_a_session_takes_its_runs_events_feedback_and_checkpoints(pool: Pool) -> None:
    store = journal(pool)
    for number in range(3):
        begun = await store.begin("default", f"r{number}", "hash", None, "s1" if number < 2 else "s2")
        await store.append(begun, EVENTS, state="done")
        assert await store.add_feedback("default", f"r{number}", 0.5, "agentic", "fine")
    async with pool.connection() as connection:
        await connection.execute(
            "insert into checkpoints (thread_id, checkpoint_id, checkpoint) values ('default/r0', '1', '{}'), "
            "('default/r2', '1', '{}')"
        )
    assert await store.erase("default", "s1") == 2
    async with pool.connection() as connection:
        rows = await (
            await connection.execute(
                "select (select count(*) from run), (select count(*) from run_events), (select count(*) from feedback),"
                " (select count(*) from checkpoints)"
            )
        ).fetchone()
    assert rows == (1, 3, 1, 1)


async def test_retention_deletes_what_is_older(pool: Pool) -> None:
    store = journal(pool)
    await store.begin("default", "old", "hash", None, "")
    async with pool.connection() as connection:
        await connection.execute("update run set created_at = now() - interval '40 days'")
    await store.begin("default", "new", "hash", None, "")
    assert await store.purge(30.0) == 1
    assert await store.load("default", "old") is None
    assert await store.load("default", "new") is not None


async def test_later_feedback_replaces_earlier(pool: Pool) -> None:
    store = journal(pool)
    await store.begin("default", "r1", "hash", None, "")
    assert await store.add_feedback("default", "r1", -1.0, "", "wrong")
    assert await store.add_feedback("default", "r1", 1.0, "standard", "right after all")
    async with pool.connection() as connection:
        row = await (await connection.execute("select rating, correct_route, comment from feedback")).fetchone()
    assert row == (1.0, "standard", "right after all")


async def age(pool: Pool, request_id: str = "r1") -> None:
    """Let a lease run out."""
    async with pool.connection() as connection:
        await connection.execute(
            "update run set lease_until = now() - interval '1 second' where request_id = %s", (request_id,)
        )


async def test_a_run_whose_lease_ran_out_is_claimed_and_its_earlier_owner_writes_no_more(pool: Pool) -> None:
    store = journal(pool)
    dead = await store.begin("default", "r1", "hash", None, "")
    await store.append(dead, EVENTS[:1])
    assert not (await store.claim("default", "r1", "hash")).owner
    await age(pool)
    assert not (await store.claim("default", "r1", "another body")).owner
    heir = await store.begin("default", "r1", "hash", None, "")
    assert (bool(heir.owner), heir.state, heir.last_sequence) == (True, "running", 1)
    with pytest.raises(Unavailable):
        await store.append(dead, EVENTS[1:], state="done")
    await store.append(heir, EVENTS[1:], state="done")
    stored = await store.load("default", "r1")
    assert stored is not None
    assert (stored.state, len(stored.entries)) == ("done", 3)
    assert not (await store.claim("default", "r1", "hash")).owner


async def test_what_was_recorded_as_done_stays_done(pool: Pool) -> None:
    store = journal(pool)
    begun = await store.begin("default", "r1", "hash", None, "")
    await store.append(begun, EVENTS, state="done")
    with pytest.raises(Unavailable):
        await store.append(begun, [], state="failed")
    stored = await store.load("default", "r1")
    assert stored is not None
    assert stored.state == "done"


async def test_renewing_keeps_a_run_and_only_ones_own(pool: Pool) -> None:
    store = journal(pool)
    mine = await store.begin("default", "r1", "hash", None, "")
    theirs = await store.begin("default", "r2", "hash", None, "")
    await age(pool)
    await age(pool, "r2")
    await store.renew([mine, replace(theirs, owner="somebody else")])
    assert not (await store.claim("default", "r1", "hash")).owner
    assert (await store.claim("default", "r2", "hash")).owner


async def test_a_failed_run_is_free_and_a_waiting_one_wants_a_reply(pool: Pool) -> None:
    store = journal(pool)
    begun = await store.begin("default", "r1", "hash", {"question": "which?"}, "")
    await store.append(begun, EVENTS[:1], state="failed")
    again = await store.claim("default", "r1", "hash")
    assert (bool(again.owner), again.state) == (True, "failed")
    await store.append(again, [], state="waiting")
    assert not (await store.claim("default", "r1", "hash")).owner
    goes_on = await store.claim("default", "r1", "hash", reply="the ship")
    assert (bool(goes_on.owner), goes_on.state) == (True, "waiting")
    stored = await store.load("default", "r1")
    assert stored is not None
    assert stored.question == {"question": "which?", "replies": ["the ship"]}


async def test_a_run_that_was_erased_takes_no_more_events(pool: Pool) -> None:
    store = journal(pool)
    begun = await store.begin("default", "r1", "hash", None, "")
    await store.erase("default", "r1")
    with pytest.raises(NotFound):
        await store.append(begun, EVENTS)


async def test_text_that_no_database_holds_is_kept_as_near_as_can_be(pool: Pool) -> None:
    store = journal(pool)
    begun = await store.begin("default", "r1", "hash", {"question": "\ud800?", "history": [["user", "\x00"]]}, "")
    texts = ["lone \ud800 surrogate", "NUL \x00\x00", "a backslash before \\u0000", "\\\x00"]
    await store.append(begun, [Event(n, TokenEmitted(text), text) for n, text in enumerate(texts, start=1)])
    stored = await store.load("default", "r1")
    assert stored is not None
    assert [event.body for event in store.events(stored)] == [
        TokenEmitted("lone ? surrogate"),
        TokenEmitted("NUL \ufffd\ufffd"),
        TokenEmitted("a backslash before \\u0000"),
        TokenEmitted("\\\ufffd"),
    ]
    assert stored.question == {"question": "??", "history": [["user", "\ufffd"]]}
