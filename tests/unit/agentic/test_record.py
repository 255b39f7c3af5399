"""What a record tells already, and what of its passages the answer still sees."""

from __future__ import annotations

import pytest

from agentic.compression import distinct
from agentic.state import Fact, Held
from agentic.writer import excerpt
from standard.domain.passage import RetrievedPassage
from standard.domain.text import UntrustedText
from tests.support.memory_retriever import passage

RECORD = (
    Fact("Razorbill carries 38 cars and 310 passengers.", (7,)),
    Fact("Razorbill burns 510 litres an hour at service speed.", (8,)),
)


def held(text: str, section: str = "") -> Held:
    return Held(7, RetrievedPassage(passage("d", text), 0.5), 1, section=UntrustedText(section) if section else None)


def test_a_fact_that_the_record_tells_in_other_words_is_told_once() -> None:
    again = Fact("Razorbill: 310 passengers, 38 cars and 510 litres an hour", (7, 8))
    assert distinct([*RECORD, again]) == RECORD
    assert distinct([*RECORD, RECORD[0]]) == RECORD


@pytest.mark.parametrize(
    "new",
    [
        Fact("Razorbill carries 36 cars and 310 passengers.", (7,)),
        Fact("Razorbill carries 38 cars and 310 passengers.", (7, 9)),
        Fact("Razorbill carries 38 cars and 310 passengers.", (9,)),
        Fact("Razorbill carries no more than 38 cars and 310 passengers.", (7,)),
        Fact("Razorbill carries 38 cars, and lorries below ten tonnes.", (7,)),
    ],
)
def test_another_number_source_denial_or_thing_is_a_fact_of_its_own(new: Fact) -> None:
    assert distinct([*RECORD, new]) == (*RECORD, new)


def test_a_fact_of_a_table_brings_all_of_its_rows_back() -> None:
    table = held("# Ship sheet\n\n| Length | 54.2 m |\n| Passengers | 310 |\n| Cars | 38 |\n| Crew | 10 |\n")
    text = excerpt(table, RECORD).text.raw
    assert "310" in text
    assert "38" in text
    assert "54.2" not in text


def test_a_heading_does_not_stand_for_what_it_announces() -> None:
    sheet = held("# Contract manager\n\nThe head of terminals. Complaints are raised within 45 days.")
    text = excerpt(sheet, [Fact("The contract manager is the head of terminals.", (7,))]).text.raw
    assert "head of terminals" in text
    assert "45 days" not in text


def test_what_was_read_beside_a_passage_bears_facts_out_too() -> None:
    read = held("Captain Brevik had the command.", "Captain Brevik had the command. A return spring had broken.")
    assert "spring" in excerpt(read, [Fact("A return spring had broken", (7,))]).text.raw
