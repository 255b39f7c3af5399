"""A process that uses the embedded PostgreSQL of a data directory until it is told to end, or is killed.

    python -m tests.support.postgres_user DATA_DIRECTORY [ignore-signals]

Prints one JSON line {"pid": of the server, "url": ...} once it is connected, then waits for a line on standard input;
ends as a program should on SIGINT and SIGTERM: it closes its share of the server.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from standard.database.embedded import start_embedded

if TYPE_CHECKING:
    from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: list[str]) -> None:
    """Hold the server for as long as the process lives."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    server = start_embedded(Path(arguments[0]), durable=False)
    try:
        with psycopg.connect(server.url) as conn:
            conn.execute("select 1")
        sys.stdout.write(json.dumps({"pid": server.pid, "url": server.url}) + "\n")
        sys.stdout.flush()
        sys.stdin.readline()
    finally:
        server.close()


if __name__ == "__main__":
    main(sys.argv[1:])
