"""A query taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic.same_need.analysis import analyse


def numbers(query: str) -> set[str]:
    return set(analyse(query).numbers)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("revenue in 2019", {"n:2019"}),
        ("penalty above 1,000 units", {"n:1000"}),
        ("loan of 250 thousand dollars", {"n:250000"}),
        ("loan of $250k", {"n:250000"}),
        ("the twenty-first floor", {"n:21"}),
        ("the 21st floor", {"n:21"}),
        ("results of the third quarter", {"q:3"}),
        ("Q3 results", {"q:3"}),
        ("H1 2020", {"h:1", "n:2020"}),
        ("FY2023 budget", {"n:2023"}),
        ("cars of the 1980s", {"decade:1980"}),
        ("meeting on 3 March 2022", {"month:3", "n:3", "n:2022"}),
        ("meeting on 2022-03-03", {"month:3", "n:3", "n:2022"}),
        ("Henry VIII", {"n:8"}),
        ("Louis XIV", {"n:14"}),
        ("Oskar the Nineteenth", {"n:19"}),
        ("revenue in the year 2019", {"n:2019"}),
        ("films of the eighties", {"decade:1980"}),
        ("songs of the 90s", {"decade:1990"}),
        ("half an hour late", {"seconds:1800"}),
        ("30 minutes late", {"seconds:1800"}),
        ("a 2-day ticket", {"seconds:172800"}),
        ("ferry at 9 pm", {"code:21:00"}),
        ("form B12", {"code:b12"}),
        ("policy POL-017", {"n:17"}),
        ("May people smoke?", set()),
        ("guests in May", {"month:5"}),
        ("a march through the city", set()),
        ("three hundred chairs", {"n:300"}),
        ("a dozen chairs", {"n:12"}),
        ("phone no. of the desk", set()),
    ],
)
def test_numbers_dates_and_codes_have_one_form(query: str, expected: set[str]) -> None:
    assert numbers(query) == expected


@pytest.mark.parametrize(
    ("query", "types"),
    [
        ("Who runs it?", {"agent"}),
        ("When was it built?", {"time"}),
        ("Where is it?", {"place"}),
        ("Why did it fail?", {"reason"}),
        ("How many seats are there?", {"count"}),
        ("number of seats", {"count"}),
        ("How long does it last?", {"long"}),
        ("How do I reset it?", {"manner"}),
        ("WHO headquarters", {"place"}),
        ("What should I do when it rings?", set()),
        ("birthplace of Ilse", {"place"}),
    ],
)
def test_the_kind_of_thing_asked_for_is_known(query: str, types: set[str]) -> None:
    assert set(analyse(query).types) == types


def test_negation_scope_modality_and_tense_are_facts() -> None:
    assert analyse("invoices that were not approved").negated
    assert analyse("gluten-free meals").negated
    assert not analyse("phone no. of the desk").negated
    assert analyse("all branches").quantifiers == {"all"}
    assert analyse("must employees wear helmets").modality == {"must"}
    assert analyse("could the leak have been prevented").modality >= {"could_have"}
    assert analyse("Who was the captain?").tenses == {"past"}


def test_names_are_told_from_words() -> None:
    words = {word.text: word.name for word in analyse("Where does Anna Berg keep the Keys?").words}
    assert words["anna"]
    assert words["berg"]
    assert {word.text: word.name for word in analyse("Anna Berg contact").words}["anna"]
    assert not {word.text: word.name for word in analyse("Travel policy").words}["travel"]


@given(st.text(max_size=400))
def test_any_text_can_be_taken_apart(query: str) -> None:
    analysis = analyse(query)
    assert analysis == analyse(query)
    assert len(analysis.words) <= 500
