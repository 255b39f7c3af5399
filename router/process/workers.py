"""One worker of several: a whole gateway in a process of its own, behind ports that it shares with the others.

The supervisor (router.process.supervisor) starts it by exec, never by fork: gRPC does not survive a fork of a process
that uses it. The worker reads the settings as any gateway does, and takes from its Place what the group shares. What it
has to tell goes through a pipe, one JSON object a line: {"ready": {"metrics_port": N}} once it serves, and
{"metrics": TEXT} as its last word, so that what it counted is not lost with it. It stops on SIGTERM, and when the
supervisor is gone.

Run as `python -m router.process.workers PLACE`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import uvloop

from router.settings import BadSettings, load_settings
from standard.domain.errors import PointsmanError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.settings import Settings

MOST = 64
"""Largest number of workers."""
FAILED = 1
WRONG_SETTINGS = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker stands: its number from 0, the group's gRPC port, its own metrics port (0 = a free one).

    `http` and `told` are inherited descriptors: the listening socket (-1 = HTTP is not served) and the pipe's end that
    is written to. `overrides` are the sections given on the command line.
    """

    index: int
    port: int
    metrics_port: int
    http: int
    told: int
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The place as an argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read an argument."""
        return cls(**json.loads(text))

    def applied(self, settings: Settings) -> Settings:
        """The settings with the group's ports in them."""
        server = settings.server.model_copy(update={"port": self.port, "metrics_port": self.metrics_port})
        return settings.model_copy(update={"server": server})

    def http_socket(self) -> socket.socket | None:
        """The listening socket of the group."""
        return None if self.http < 0 else socket.socket(fileno=self.http)


def tell(place: Place, **message: object) -> None:
    """Write one message for the supervisor; where it is gone nobody needs to know."""
    try:
        with os.fdopen(os.dup(place.told), "w") as pipe:
            pipe.write(json.dumps(message) + "\n")
    except OSError:
        return


async def work(place: Place, settings: Settings) -> None:
    """Serve until SIGTERM, or until standard input ends: the supervisor holds its other end."""
    from prometheus_client.openmetrics.exposition import generate_latest

    from router.process.serving import open_worker
    from router.telemetry.logs import configure_logs

    configure_logs(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    supervised = sys.stdin.fileno()

    def orphaned() -> None:
        loop.remove_reader(supervised)
        stop.set()

    loop.add_reader(supervised, orphaned)
    async with open_worker(place.applied(settings), place) as (metrics, metrics_port):
        tell(place, ready={"metrics_port": metrics_port})
        await stop.wait()
        loop.remove_reader(supervised)
    tell(place, metrics=generate_latest(metrics.registry).decode())  # type: ignore[no-untyped-call]


def main(argument: str) -> int:
    """Run one worker; the exit code."""
    place = Place.from_json(argument)
    try:
        uvloop.run(work(place, load_settings(**place.overrides)))
    except BadSettings as error:
        print(f"pointsman: worker {place.index}: {error}", file=sys.stderr)  # noqa: T201 - logs may not be set up
        return WRONG_SETTINGS
    except PointsmanError as error:
        print(f"pointsman: worker {place.index}: {error.message}", file=sys.stderr)  # noqa: T201
        return FAILED
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
