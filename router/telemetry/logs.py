"""Structured logs on stderr: one record an event, with the request's id."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from router.settings import LogSettings


def configure_logs(settings: LogSettings) -> None:
    """Set up logging for the process; call once at its start."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    as_json = settings.format == "json" or (settings.format == "auto" and not sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        neutral_values,
    ]
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        stream=sys.stderr, level=max(level, logging.WARNING), format="%(levelname)s %(name)s %(message)s"
    )


def quiet_logs() -> None:
    """Warnings and worse alone, for commands; `configure_logs` follows the settings."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            neutral_values,
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=False),
        ],
    )


def neutral_values(_logger: object, _method: str, record: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters in text values, so that no value can forge a record or steer a terminal."""
    for key, value in record.items():
        if isinstance(value, str) and not value.isprintable():
            record[key] = "".join(
                character if character.isprintable() else f"\\u{ord(character):04x}" for character in value
            )
    return record
