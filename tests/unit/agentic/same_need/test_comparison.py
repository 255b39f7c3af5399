"""Two queries compared, without embeddings: what differs, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic.same_need.alignment import edits
from agentic.same_need.calibrate import read_pairs
from agentic.same_need.comparison import compare
from agentic.same_need.decision import Thresholds, compare_needs, normalise


@pytest.mark.parametrize(
    ("earlier", "query", "told"),
    [
        ("revenue of Acme in 2019", "revenue of Acme in 2015", "2019 / 2015"),
        ("revenue in Q3", "revenue in Q4", "3 / 4"),
        ("fee for 2 guests", "fee for 3 guests", "2 / 3"),
        ("20 kg tank", "20 litre tank", "units"),
        ("approved invoices", "invoices not approved", "negated"),
        ("authorised contractors", "unauthorised contractors", "unauthorised"),
        ("flights from Oslo to Bergen", "flights from Bergen to Oslo", "oslo"),
        ("Did Acme acquire Borealis?", "Did Borealis acquire Acme?", "change places"),
        ("Who did Carla Noor replace?", "Who replaced Carla Noor?", "carla"),
        ("Where was Anna Berg born?", "Where was Anna Bergman born?", "berg"),
        ("costs before the merger", "costs after the merger", "before"),
        ("must employees wear helmets", "may employees wear helmets", "modality"),
        ("all branches", "branches", "scope"),
        ("refund policy", "refund policy for groups", "for groups"),
        ("Who founded it?", "When was it founded?", "asks for time"),
        ("Who is the captain?", "Who was the captain?", "time differs"),
        ("Is Model A heavier than Model B?", "Is Model B heavier than Model A?", "change places"),
        ("Is Model A longer than Model B?", "Is Model A shorter than Model B?", "longer"),
        ("budget until 2025", "budget after 2025", "until"),
        ("ferries at 9 am", "ferries at 9 pm", "09:00 / 21:00"),
        ("revenue in 2020", "revenue forecast made in 2020", "planned"),
        ("Who signed the lease?", "Who ended the lease?", "signed"),
        ("Who owns the rights?", "Who sold the rights?", "owns"),
        ("Who replaced Ivo Lund as treasurer?", "Who did Ivo Lund replace as treasurer?", "ivo"),
        ("What caused the strike?", "What did the strike cause today?", "strike"),
        ("complaints about the caterer", "complaints by the caterer", "cater"),
        ("orders over 500 euros", "orders under 500 euros", "exceeding"),
        ("suppliers that meet the norm", "suppliers that fail the norm", "meet"),
        ("Can I deduct travel costs?", "How do I deduct travel costs?", "a way to do it"),
        ("Is the merger approved?", "Should the merger be approved?", "modality"),
        ("What does Acme pay suppliers?", "What should Acme pay suppliers?", "should be"),
        ("firms that own Acme", "firms that Acme owns", "acme"),
        ("people who trust Nadia", "people Nadia trusts", "nadia"),
        ("Who leases the office to us?", "To whom do we lease the office?", "us"),
        ("Who can sign contracts?", "Who signed contracts?", "signed"),
        ("Who is the architect of the port?", "Who is the supplier of the port?", "architect"),
        ("documents employees submit", "documents employees receive", "submit"),
        ("turn the alarm on", "turn the alarm off", "on"),
        ("How is cork made?", "How is cork used?", "made"),
        ("votes for the plan", "votes against the plan", "plan"),
        ("books in French", "books in France", "french"),
        ("grant of 3 million pounds", "grant of 3 million euros", "units"),
    ],
)
def test_a_difference_of_fact_is_found_and_named(earlier: str, query: str, told: str) -> None:
    assert told in compare(earlier, query).conflict
    assert compare(query, earlier).conflict


@pytest.mark.parametrize(
    ("first", "second"),
    [("claims above €5,000", "claims above $5,000"), ("C++ courses", "C courses"), ("at -5 degrees", "at 5 degrees")],
)
def test_signs_that_mean_something_tell_queries_apart(first: str, second: str) -> None:
    assert normalise(first) != normalise(second)
    assert normalise(f"{first}!") == normalise(first.upper())


@pytest.mark.parametrize(
    ("earlier", "query"),
    [
        ("Acme revenue 2019", "In 2019, what was the revenue of Acme?"),
        ("chief financial officer of Brightwater", "Brightwater CFO"),
        ("headquarters of the World Health Organization", "WHO headquarters"),
        ("refund polcy for cancelled trips", "refund policy for cancelled trips"),
        ("Who built the Harrow tunnel?", "By whom was the Harrow tunnel built?"),
        ("refund policy for lost luggage", "lost luggage refund policy"),
        ("difference between gold and silver membership", "silver and gold membership difference"),
        ("inspecting lifeboats", "lifeboat inspection"),
        ("Can you tell me the dress code?", "dress code"),
        ("opening date of the tunnel", "When was the tunnel opened?"),
        ("revenue 2019", "revenue in the year 2019"),
        ("World War II casualties", "casualties of the Second World War"),
        ("claims above €5,000", "claims over 5000 euros"),
        ("grant of £3m", "grant of 3 million pounds"),
        ("value added tax (VAT) on tickets", "VAT on tickets"),
        ("trucks over 3 tonnes", "trucks over 3,000 kg"),
        ("parcels of 500 g", "parcels of 500 grams"),
        ("a break of 30 min", "a break of half an hour"),
        ("a contract of 24 months", "a contract of two years"),
        ("due by 31.12.2023", "due by December 31, 2023"),
        ("art of the 1700s", "art of the 18th century"),
        ("Where'd the Vikings land?", "Where did the Vikings land?"),
        ("Which firms supply steel?", "Which companies provide steel?"),
        ("How fast does sound travel in water?", "speed of sound in water"),
        ("chief information security officer of Acme", "CISO of Acme"),
        ("presidents of France", "French presidents"),
        ("the quickest route", "the fastest route"),
        ("rule for three or more guests", "rule for at least 3 guests"),
        ("price of the 2-day ticket", "the two-day ticket's price"),
        ("last bus after 22:30", "last bus after half past ten in the evening"),
        ("all routes except Route 4", "every route apart from Route 4"),
        ("mileage allowance for each kilometre", "mileage allowance per kilometre"),
    ],
)
def test_the_same_need_in_other_words_leaves_nothing_over(earlier: str, query: str) -> None:
    found = compare(earlier, query)
    assert not found.conflict
    assert not found.left
    assert not found.right


@given(st.sampled_from(read_pairs()))
def test_a_comparison_reads_the_same_both_ways(pair: object) -> None:
    from agentic.same_need.calibrate import Pair

    assert isinstance(pair, Pair)
    one, two = compare(pair.a, pair.b), compare(pair.b, pair.a)
    assert bool(one.conflict) == bool(two.conflict)


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_two_texts_can_be_compared(earlier: str, query: str) -> None:
    decision = compare_needs(earlier, query, 0.1)
    assert decision.reason


@given(st.sampled_from(read_pairs()))
def test_a_query_asks_for_what_it_asks_for(pair: object) -> None:
    from agentic.same_need.calibrate import Pair

    assert isinstance(pair, Pair)
    assert compare_needs(pair.a, pair.a, 0.0).same
    assert compare_needs(pair.a, f"  {pair.a.rstrip('?')} ?", 0.0).same
    assert compare_needs(pair.a, f"Please tell me: {pair.a}", 0.1).same


def test_words_left_over_need_a_short_distance() -> None:
    limits = Thresholds(matched=0.6, left_over=0.1, max_left_over=2)
    pair = ("comfy sofas in the lounge", "Which sofas in the lounge are cosy?")
    assert compare_needs(*pair, 0.05, limits).same
    assert not compare_needs(*pair, 0.3, limits).same


def test_a_part_of_a_question_is_a_need_of_its_own() -> None:
    whole = "Who is the father of Lena Fors's father?"
    assert not compare_needs(whole, "Who is the father of Lena Fors?", 0.03).same
    assert not compare_needs("Which club does Petra Lindt's husband play for?", "husband of Petra Lindt", 0.05).same


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_edit_distance_is_symmetric_and_zero_only_for_equals(first: str, second: str) -> None:
    assert edits(first, second, 6) == edits(second, first, 6)
    assert (edits(first, second, 6) == 0) == (first == second)


def test_normalising_drops_case_and_marks() -> None:
    assert normalise("What's  the REFUND-policy?") == normalise("what s the refund policy")
