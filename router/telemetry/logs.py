"""Structured logs on stderr: one record an event, with the ids of the call that it belongs to, and without secrets."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import structlog

from router.telemetry.calls import call_in_hand
from router.telemetry.redaction import redaction, secrets_of, stricter
from standard import spans

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from router.settings import Settings


def configure_logs(settings: Settings) -> None:
    """Set up logging for the process; call once at its start.

    Libraries' records, from warning on, take the same form and go the same way as ours.
    """
    log = settings.log
    level = logging.getLevelNamesMapping()[log.level.upper()]
    as_json = log.format == "json" or (log.format == "auto" and not sys.stderr.isatty())
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    consent = stricter(log.questions, settings.journal.questions)
    chain: list[Any] = [
        structlog.contextvars.merge_contextvars,
        of_the_call,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Any] = [redaction(consent, secrets_of(settings)), neutral_values, renderer]
    _configure(level, [*chain, *last], keep=True)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[_message_of, *last],
            foreign_pre_chain=[*chain, structlog.stdlib.add_logger_name],
        )
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)


def quiet_logs() -> None:
    """Warnings and worse alone, for commands; `configure_logs` follows the settings."""
    chain: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        redaction("text"),
        neutral_values,
        structlog.dev.ConsoleRenderer(colors=False),
    ]
    # Not kept by the loggers: `serve` configures anew once it has read the settings.
    _configure(logging.WARNING, chain, keep=False)


def _configure(level: int, processors: list[Any], *, keep: bool) -> None:
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=keep,
    )


def of_the_call(_logger: object, _method: str, record: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Name the request, the trace and the span that a record belongs to."""
    call = call_in_hand()
    if call is not None and "request_id" not in record:
        record["request_id"] = call.id_for_logs()
    span = spans.current()
    if span is not None and span.trace_id:
        record["trace_id"] = span.trace_id
        record["span_id"] = span.span_id
    return record


def _message_of(_logger: object, _method: str, record: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop what a ProcessorFormatter adds, and take over the error of a record of the standard library."""
    of_library = record.pop("_record", None)
    record.pop("_from_structlog", None)
    if of_library is not None and of_library.exc_info:
        record["exc_info"] = of_library.exc_info
    return record


def neutral_values(_logger: object, _method: str, record: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters in text values, so that no value can forge a record or steer a terminal.

    A traceback keeps its lines.
    """
    for key, value in record.items():
        if isinstance(value, str) and not value.isprintable() and key != "exception":
            record[key] = "".join(
                character if character.isprintable() else f"\\u{ord(character):04x}" for character in value
            )
    return record
