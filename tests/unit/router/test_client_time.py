"""How long the client gives a call."""

from __future__ import annotations

import pytest
from pointsman.client import DEFAULT_TIMEOUT_SECONDS, question, time_allowed
from pointsman.v1 import gateway_pb2


def test_a_call_without_a_budget_of_time_has_the_clients_own() -> None:
    assert time_allowed(question("Who keeps the log?"), DEFAULT_TIMEOUT_SECONDS) == DEFAULT_TIMEOUT_SECONDS


@pytest.mark.parametrize("seconds", [120.0, 300.0, 3600.0])
def test_a_budget_of_time_ends_an_answer_before_the_deadline_ends_the_call(seconds: float) -> None:
    asked = question("Who keeps the log?", budget=gateway_pb2.Budget(max_seconds=seconds))
    assert time_allowed(asked, DEFAULT_TIMEOUT_SECONDS) > seconds


def test_a_short_budget_leaves_the_clients_own_time() -> None:
    asked = question("Who keeps the log?", budget=gateway_pb2.Budget(max_seconds=1.0))
    assert time_allowed(asked, 30.0) == 30.0
