"""Events of runs as metrics."""

from __future__ import annotations

from router.telemetry.events import count_event
from router.telemetry.metrics import Metrics
from standard.domain.answer import Citation
from standard.domain.event import CitationMade


def test_citations_count_by_whether_they_were_moved() -> None:
    metrics = Metrics()
    for moved in (False, False, True):
        count_event(metrics, CitationMade(0, Citation("d#0", "d", "Title", "file:d", "quote", 0, 3, 5, 10, moved)))
    read = metrics.registry.get_sample_value
    assert read("pointsman_citations_total", {"status": "kept"}) == 2
    assert read("pointsman_citations_total", {"status": "moved"}) == 1
