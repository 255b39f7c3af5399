"""A question that joins lookups is split by its wording, whatever its length."""

from __future__ import annotations

import pytest

from agentic.controllers.split import MAX_READ, split_question


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Is Acme or Bolt older?", ("Acme", "Bolt")),
        ("Which is cheaper, the day pass or the week pass?", ("the day pass", "the week pass")),
        ("compare the north quay with the south quay", ("the north quay", "the south quay")),
        ("Berth One versus Berth Two", ("Berth One", "Berth Two")),
        ("How long did Bank of Norland and Port of Sund trade?", ("Bank of Norland", "Port of Sund")),
    ],
)
def test_each_of_two_things_gets_a_query_of_its_own(question: str, parts: tuple[str, str]) -> None:
    found = split_question(question)
    assert len(found) == 2
    assert all(part in query for part, query in zip(parts, found, strict=True))


def test_of_a_long_text_the_question_at_its_end_is_split() -> None:
    found = split_question("background said at length " * 200 + ": compare the north quay with the south quay")
    assert len(found) == 2
    assert all(len(query) <= MAX_READ for query in found)
    assert "north quay" in found[0]
