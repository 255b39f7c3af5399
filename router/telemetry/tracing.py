"""Traces by OpenTelemetry's SDK, sent to a collector over OTLP (HTTP, protobuf).

The SDK is imported where an endpoint is set and nowhere else. A call never waits for the collector: spans that ended go
into a queue of bounded length, a thread sends them, and what finds no room, or is refused, is counted and forgotten.
Which calls are recorded is decided once, where a call arrives: by its caller's decision where it brings one, else by
`traces.ratio` of the trace ids. Of a call that is not recorded no span is made at all.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState

from router.telemetry.context import read_parent, traceparent
from standard import semconv
from standard.spans import Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

    from router.settings import TraceSettings
    from router.telemetry.context import Parent
    from router.telemetry.metrics import Metrics
    from standard.spans import Span, Value

_log = structlog.get_logger("pointsman.traces")
_BATCH: Final = 512
_EVERY_SECONDS: Final = 2.0
TRACES_PATH: Final = "/v1/traces"


class RecordedSpan:
    """A Span that the SDK records."""

    __slots__ = ("_context", "_headers", "_span", "_tracer", "content", "span_id", "trace_id")
    recording: Final = True

    def __init__(self, tracer: Tracer, span: OtelSpan, *, content: bool) -> None:
        self._tracer = tracer
        self._span = span
        self._context: Context | None = None
        self._headers: dict[str, str] | None = None
        self.content = content
        context = span.get_span_context()
        self.trace_id = f"{context.trace_id:032x}"
        self.span_id = f"{context.span_id:016x}"

    def child(self, name: str, attributes: Mapping[str, Value], *, client: bool, began_ns: int | None) -> Span:
        """Begin a span below this one."""
        if self._context is None:
            self._context = set_span_in_context(self._span, Context())
        span = self._tracer.start_span(
            name,
            self._context,
            SpanKind.CLIENT if client else SpanKind.INTERNAL,
            attributes,
            start_time=began_ns,
        )
        return RecordedSpan(self._tracer, span, content=self.content)

    def set(self, key: str, value: Value) -> None:
        """Write an attribute."""
        self._span.set_attribute(key, value)

    def note(self, name: str, attributes: Mapping[str, Value]) -> None:
        """Write that something happened."""
        self._span.add_event(name, attributes)

    def link(self, traceparent: str) -> None:
        """Point to another span."""
        parent = read_parent([traceparent])
        if parent is not None:
            self._span.add_link(_remote(parent))

    def fail(self, kind: str) -> None:
        """Say that it failed; the message of the error may hold content, so its kind alone is told."""
        self._span.set_attribute(semconv.ERROR_TYPE, kind)
        self._span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        """It is over."""
        self._span.end()

    def headers(self) -> Mapping[str, str]:
        """W3C trace context."""
        if self._headers is None:
            self._headers = _headers(self.trace_id, self.span_id, self._span.get_span_context())
        return self._headers


def _headers(trace_id: str, span_id: str, context: SpanContext) -> dict[str, str]:
    headers = {"traceparent": traceparent(trace_id, span_id, sampled=context.trace_flags.sampled)}
    if context.trace_state:
        headers["tracestate"] = context.trace_state.to_header()
    return headers


def _remote(parent: Parent) -> SpanContext:
    return SpanContext(
        int(parent.trace_id, 16),
        int(parent.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([parent.state]) if parent.state else None,
    )


class Tracing:
    """Begins the span of a call that arrives."""

    def __init__(self, tracer: Tracer, *, content: bool) -> None:
        self._tracer = tracer
        self._content = content

    def arrived(self, name: str, attributes: Mapping[str, Value], parent: Parent | None) -> Span:
        """The call's span: below the caller's where it named one, and a mere Place where it is not sampled."""
        context = Context()
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(_remote(parent)), context)
        span = self._tracer.start_span(name, context, SpanKind.SERVER, attributes)
        if span.is_recording():
            return RecordedSpan(self._tracer, span, content=self._content)
        found = span.get_span_context()
        trace_id, span_id = f"{found.trace_id:032x}", f"{found.span_id:016x}"
        return Place(trace_id, span_id, _headers(trace_id, span_id, found))


class _Counting(SpanExporter):
    """Exports, and counts what became of the spans. Runs in the sending thread."""

    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        self._exporter = exporter
        self._exported = metrics.trace_spans.labels("exported")
        self._failed = metrics.trace_spans.labels("failed")
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)  # of the queue: this thread alone counts here
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            (self._exported if result is SpanExportResult.SUCCESS else self._failed).inc(len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class BoundedSpans(SpanProcessor):
    """The queue before the sending thread: `most` spans wait, those beyond are counted and forgotten.

    The SDK's own queue forgets as well, but without a count that one could see.
    """

    def __init__(self, exporter: SpanExporter, metrics: Metrics, *, most: int) -> None:
        self._exporter = _Counting(exporter, metrics)
        self._dropped = metrics.trace_spans.labels("dropped")
        self._most = most
        self._accepted = 0
        self._lock = threading.Lock()
        self._sending = BatchSpanProcessor(
            self._exporter,
            max_queue_size=most,
            schedule_delay_millis=_EVERY_SECONDS * 1000,
            max_export_batch_size=min(_BATCH, most),
        )

    def on_start(self, span: OtelSpan, parent_context: Context | None = None) -> None:
        """Nothing."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or count it as dropped."""
        with self._lock:  # spans end in the event loop's thread, in a few places in others
            full = self._accepted - self._exporter.taken >= self._most
            if not full:
                self._accepted += 1
        if full:
            self._dropped.inc()
        else:
            self._sending.on_end(span)

    def shutdown(self) -> None:
        """Send what waits and stop."""
        self._sending.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what waits."""
        return self._sending.force_flush(timeout_millis)


@asynccontextmanager
async def open_tracing(
    settings: TraceSettings, metrics: Metrics, *, content: bool, exporter: Callable[[], SpanExporter] | None = None
) -> AsyncIterator[Tracing]:
    """Yield what begins spans; at the end of the block what waits is sent, for `traces.flush_seconds` at most.

    `content`: texts may be written on spans. `exporter` makes another than that of the settings.
    """
    made = exporter() if exporter is not None else _exporter(settings)
    processor = BoundedSpans(made, metrics, most=settings.queue)
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.ratio)),
        resource=Resource.create(_resource(settings)),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("pointsman", version("pointsman"), schema_url=semconv.SCHEMA_URL)
    try:
        yield Tracing(tracer, content=content)
    finally:
        await _shut(provider, settings.flush_seconds)


async def _shut(provider: TracerProvider, seconds: float) -> None:
    """Send what waits, in a thread of its own that nobody waits for longer than `seconds`."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def shut() -> None:
        provider.shutdown()
        try:
            loop.call_soon_threadsafe(done.set)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    threading.Thread(target=shut, name="traces-shutdown", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
    except TimeoutError:
        _log.warning("spans that had ended were not all sent", seconds=seconds)


def address_of(settings: TraceSettings) -> str:
    """Where spans are posted to: the endpoint, with the protocol's own path where it has none."""
    url = urlsplit(settings.endpoint)
    return url._replace(path=TRACES_PATH).geturl() if url.path in {"", "/"} else settings.endpoint


def _exporter(settings: TraceSettings) -> SpanExporter:
    headers = {name.lower(): value.get_secret_value() for name, value in settings.headers.items()}
    return OTLPSpanExporter(endpoint=address_of(settings), headers=headers, timeout=settings.timeout_seconds)


def _resource(settings: TraceSettings) -> dict[str, str]:
    return {
        "service.name": settings.service_name,
        "service.version": version("pointsman"),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
