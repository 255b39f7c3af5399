"""The metrics of several workers as one: sums where numbers are sums, the worst where they are states."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.openmetrics.exposition import generate_latest

from router.process.supervisor import GroupMetrics
from router.telemetry.merge import counted, merged, parsed
from router.telemetry.metrics import Metrics

Seconds = st.lists(st.floats(0, 400, allow_nan=False), max_size=20)


def told(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()  # type: ignore[no-untyped-call, no-any-return]


def values(texts: list[str]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = merged(parsed(text) for text in texts)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@given(st.lists(Seconds, min_size=1, max_size=4))
def test_counters_and_histograms_add_up_to_what_one_process_would_have_counted(workers: list[list[float]]) -> None:
    alone = Metrics()
    group = []
    for seconds in workers:
        each = Metrics()
        for value in seconds:
            for metrics in (each, alone):
                metrics.answer_seconds.labels("standard").observe(value)
                metrics.shed.labels("queue_full").inc()
        group.append(told(each))
    together, one = values(group), values([told(alone)])
    assert together.keys() == one.keys()
    for key, value in one.items():
        assert together[key] == pytest.approx(value, nan_ok=True)


def test_a_dependency_that_one_worker_misses_is_down_and_places_add_up() -> None:
    one, other = Metrics(), Metrics()
    for metrics, up, inflight in ((one, 1, 3), (other, 0, 4)):
        metrics.dependency_up.labels("database").set(up)
        metrics.inflight.set(inflight)
    one.canary_ok.set(1.0)  # the other asks no questions: not a number
    found = values([told(one), told(other)])
    assert found["pointsman_dependency_up", (("dependency", "database"),)] == 0
    assert found["pointsman_inflight_requests", ()] == 7
    assert found["pointsman_canary_ok", ()] == 1.0


def test_states_that_nobody_knows_stay_unknown_and_the_newest_exemplar_stays() -> None:
    one, other = Metrics(), Metrics()
    one.answers.labels("standard", "answered", "sufficient").inc(1, {"trace_id": "a"})
    other.answers.labels("standard", "answered", "sufficient").inc(1, {"trace_id": "b"})
    assert math.isnan(values([told(one), told(other)])["pointsman_canary_ok", ()])
    families = {family.name: family for family in merged([parsed(told(one)), parsed(told(other))])}
    totals = [sample for sample in families["pointsman_answers"].samples if sample.name.endswith("_total")]
    assert [(sample.value, sample.exemplar and sample.exemplar.labels) for sample in totals] == [(2, {"trace_id": "b"})]


def test_what_a_worker_counted_outlives_it_and_its_gauges_do_not() -> None:
    metrics = Metrics(CollectorRegistry(auto_describe=True))
    metrics.inflight.set(3)
    metrics.shed.labels("queue_full").inc()
    names = {family.name for family in counted(parsed(told(metrics)))}
    assert "pointsman_shed_requests" in names
    assert "pointsman_inflight_requests" not in names


def test_what_is_no_metrics_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parsed("<html>")


def test_the_group_counts_each_worker_once_while_it_lives_and_after() -> None:
    group = GroupMetrics("127.0.0.1")

    def shed() -> float:
        return sum(
            sample.value for family in group.collect() for sample in family.samples
            if sample.name == "pointsman_shed_requests_total"
        )  # fmt: skip

    worker = Metrics()
    worker.shed.labels("queue_full").inc(3)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=worker.registry)
    try:
        group.came(0, server.server_port)
        assert (shed(), shed()) == (3, 3)
        worker.shed.labels("queue_full").inc(2)
        group.left(0, told(worker))  # its last word is newer than what was scraped
        assert shed() == 5
        group.came(0, server.server_port)
        assert shed() == 10
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
    assert shed() == 10, "one that does not answer counts with what it told last"
    group.left(0, "")
    assert shed() == 10, "and so does one that died without a word"
