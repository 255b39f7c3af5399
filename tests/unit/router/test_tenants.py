"""Labels of tenants: the busiest have one, however many there are and however they take turns."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from router.telemetry.metrics import Metrics
from router.telemetry.tenants import OTHER, BusiestTenants
from standard.domain.answer import Answer, AnswerSource, Decision, DecisionReason, Outcome, StopReason
from standard.domain.question import Route

DECISION = Decision(Route.STANDARD, DecisionReason.EVIDENCE, 0.2, 0.5)
ANSWER = Answer("r", "text", AnswerSource.EXTRACTIVE, Outcome.ANSWERED, StopReason.SUFFICIENT, Route.STANDARD, DECISION)


@given(st.lists(st.sampled_from([*"abcdefghij", OTHER]), max_size=200))
def test_labels_are_bounded_and_who_loses_one_had_it(tenants: list[str]) -> None:
    busiest = BusiestTenants(labels=3, watched=6, ageing=50)
    held: set[str] = set()
    for tenant in tenants:
        label, lost = busiest.label_of(tenant)
        assert label in {tenant, OTHER}
        assert lost != tenant
        if lost:
            assert label == tenant
            held.remove(lost)
        if label != OTHER:
            held.add(label)
        assert len(held) <= 3
        assert tenant == OTHER or (label == OTHER) == (tenant not in held)


def test_who_floods_the_gateway_late_is_seen_among_very_many() -> None:
    busiest = BusiestTenants()
    random = Random(0)
    for number in range(60):  # the first of the day take every label
        busiest.label_of(f"early-{number}")
    counted: Counter[str] = Counter()
    for number in range(20_000):
        flooding = random.random() < 0.2
        tenant = f"flood-{number % 3}" if flooding else f"rare-{random.randrange(100_000)}"
        counted[busiest.label_of(tenant)[0]] += 1
    for number in range(3):
        assert counted[f"flood-{number}"] > 1000
    assert len(busiest._counts) <= 500


def test_the_busiest_of_yesterday_make_room() -> None:
    busiest = BusiestTenants(labels=1, watched=4, ageing=100)
    for _ in range(1000):
        busiest.label_of("yesterday")
    labels = [busiest.label_of("today")[0] for _ in range(600)]
    assert labels[0] == OTHER
    assert labels[-1] == "today"


def test_equals_do_not_take_turns() -> None:
    busiest = BusiestTenants(labels=1, watched=4)
    lost = [busiest.label_of(tenant)[1] for _ in range(2000) for tenant in ("one", "two")]
    assert sum(map(bool, lost)) <= 1


def test_the_registry_keeps_the_busiest_fifty_and_other() -> None:
    metrics = Metrics()
    for number in range(80):
        metrics.answered(ANSWER, f"tenant-{number}")
    for _ in range(10):
        metrics.answered(ANSWER, "tenant-79")
    names = {
        sample.labels["tenant"]
        for metric in metrics.tenant_requests.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }
    assert len(names) == 51
    assert {OTHER, "tenant-79"} <= names
