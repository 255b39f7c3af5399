"""A collector of traces: OTLP over HTTP on loopback, each span parsed and kept; or one that fails as it is told to."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

KINDS = {
    SpanMessage.SPAN_KIND_SERVER: "server",
    SpanMessage.SPAN_KIND_CLIENT: "client",
    SpanMessage.SPAN_KIND_INTERNAL: "internal",
}


@dataclass(frozen=True, slots=True)
class Received:
    """A span as it came; ids in hex, times in seconds."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    started: float
    ended: float
    attributes: dict[str, Any]
    events: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    failed: bool
    resource: dict[str, Any]
    schema_url: str
    state: str


@dataclass(eq=False)
class Collector:
    """Use as a context manager. `status` is what it answers; it sleeps `delay` seconds before."""

    status: int = 200
    delay: float = 0.0
    spans: list[Received] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """What `traces.endpoint` is set to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, body: bytes) -> None:
        """Keep the spans of a request."""
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {item.key: _value(item.value) for item in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                self.spans += [_received(span, resource, of_scope.schema_url) for span in of_scope.spans]

    def named(self, name: str) -> list[Received]:
        """The spans of that name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Received:
        """The one span of that name."""
        found = self.named(name)
        assert len(found) == 1, (name, sorted(Counter(span.name for span in self.spans).items()))
        return found[0]

    def parent(self, span: Received) -> Received:
        """The span above one that is not a root."""
        return next(each for each in self.spans if each.span_id == span.parent_id)

    def above(self, span: Received) -> list[str]:
        """Names of the spans above, nearest first, as far as they are here."""
        known = {each.span_id: each for each in self.spans}
        names = []
        while (parent := known.get(span.parent_id)) is not None:
            names.append(parent.name)
            span = parent
        return names

    def text(self) -> str:
        """Everything that anybody could read in any of the spans."""
        return repr(self.spans)


def _value(value: AnyValue) -> Any:  # noqa: ANN401
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


def _received(span: SpanMessage, resource: dict[str, Any], schema_url: str) -> Received:
    return Received(
        name=span.name,
        kind=KINDS[span.kind],
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        started=span.start_time_unix_nano / 1e9,
        ended=span.end_time_unix_nano / 1e9,
        attributes={item.key: _value(item.value) for item in span.attributes},
        events=tuple(event.name for event in span.events),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        failed=span.status.code == 2,
        resource=resource,
        schema_url=schema_url,
        state=span.trace_state,
    )


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.requests.append(
                {"path": self.path, **{key.lower(): value for key, value in self.headers.items()}}
            )
            time.sleep(collector.delay)
            if collector.status == 200:
                collector.take(body)
            try:
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()
            except OSError:  # who sent it has gone
                self.close_connection = True

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    return Handler
