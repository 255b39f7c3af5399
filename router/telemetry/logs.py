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
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    _configure(level, [stamp], renderer, keep=True)
    logging.basicConfig(
        stream=sys.stderr, level=max(level, logging.WARNING), format="%(levelname)s %(name)s %(message)s"
    )


def quiet_logs() -> None:
    """Warnings and worse alone, for commands; `configure_logs` follows the settings."""
    # Not kept by the loggers: `serve` configures anew once it has read the settings.
    _configure(logging.WARNING, [], structlog.dev.ConsoleRenderer(colors=False), keep=False)


def _configure(level: int, more: list[Any], renderer: Any, *, keep: bool) -> None:  # noqa: ANN401 - structlog's own type
    """Every record goes the same way: context, level, `more`, neutral values, errors, `renderer`."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *more,
            neutral_values,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=keep,
    )


def neutral_values(_logger: object, _method: str, record: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters in text values, so that no value can forge a record or steer a terminal."""
    for key, value in record.items():
        if isinstance(value, str) and not value.isprintable():
            record[key] = "".join(
                character if character.isprintable() else f"\\u{ord(character):04x}" for character in value
            )
    return record
