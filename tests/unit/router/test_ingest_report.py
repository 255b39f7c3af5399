"""What an ingest did is told whole: in process, over the wire, as JSON."""

from __future__ import annotations

from dataclasses import fields

from pointsman.v1 import corpus_pb2

from router.cli.ingest import remote_view, report_view
from router.grpc.corpus_service import ingest_message
from standard.corpus.document import Rejection
from standard.corpus.ingest import IngestReport

REPORT = IngestReport(
    added=1,
    replaced=2,
    unchanged=3,
    pruned=4,
    rejected=(Rejection("stream", 5, "d", "empty"),),
    rejected_count=1,
    passages=6,
    seconds=7.0,
    embedder_share=0.5,
    indexed=True,
    prune_skipped="no",
    rescanned=8,
)


def test_json_holds_every_field_of_a_report() -> None:
    view = report_view(REPORT)
    assert {field.name for field in fields(IngestReport)} <= set(view)
    assert view["rescanned"] == 8


def test_the_wire_holds_what_the_counts_were_and_the_client_prints_them() -> None:
    message = ingest_message(REPORT)
    here, there = report_view(REPORT), remote_view(message, [])
    named = {field.name for field in corpus_pb2.IngestDocumentsResponse.DESCRIPTOR.fields}
    assert named <= set(there)
    assert {name: there[name] for name in named - {"rejected"}} == {name: here[name] for name in named - {"rejected"}}
