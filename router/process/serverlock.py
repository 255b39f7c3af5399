"""One server per data directory: a lock that dies with its holder, and a note beside it of where the server listens.

Client commands read the note to find the server of their data directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from router.settings import BadSettings
from standard.domain.errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOCK = "server.lock"
_NOTE = "server.json"
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Where a server listens; ports are the real ones, also where 0 was asked for."""

    pid: int
    host: str
    port: int
    metrics_port: int
    started_at: float
    http_url: str | None = None
    """Base URL of the HTTP façades; None where HTTP is not served."""

    @property
    def target(self) -> str:
        """HOST:PORT for a client."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - listens there, is no target
        host = f"[{host}]" if ":" in host else host
        return f"{host}:{self.port}"


class ServerLock:
    """The held lock; `announce` writes the note once the ports are known."""

    def __init__(self, data_dir: Path) -> None:
        self._note = data_dir / _NOTE

    def announce(self, host: str, port: int, metrics_port: int, http_url: str | None = None) -> RunningServer:
        """Write where the server listens, atomically."""
        server = RunningServer(os.getpid(), host, port, metrics_port, time.time(), http_url)
        part = self._note.with_suffix(".part")
        part.write_text(json.dumps(asdict(server)))
        part.replace(self._note)
        return server

    def withdraw(self) -> None:
        """Remove the note."""
        self._note.unlink(missing_ok=True)


@contextmanager
def server_lock(data_dir: Path) -> Iterator[ServerLock]:
    """Hold the data directory's server lock.

    Raises FailedPrecondition, naming the holder, where another server has it, BadSettings where it can't be written.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        handle = os.open(data_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        problem = f"data_dir (POINTSMAN_DATA_DIR): {data_dir} cannot be written: {error.strerror}"
        raise BadSettings([f"{problem}; choose another directory"]) from None
    try:
        if not _locked(handle):
            other = _read_note(data_dir)
            where = f" (process {other.pid} at {other.target})" if other else ""
            raise FailedPrecondition(
                f"another server already runs on the data directory {data_dir}{where}; stop it, or choose another"
                " directory with POINTSMAN_DATA_DIR"
            )
        lock = ServerLock(data_dir)
        # A server that was killed leaves its note behind; nobody may be sent there while this one starts.
        lock.withdraw()
        try:
            yield lock
        finally:
            lock.withdraw()
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Take the lock; patient for a moment, since a command that looks for a server holds it for an instant."""
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def running_server(data_dir: Path) -> RunningServer | None:
    """The server that runs on a data directory, or None. Tells a stale note by its free lock."""
    try:
        handle = os.open(data_dir / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_note(data_dir)
    else:
        return None
    finally:
        os.close(handle)


def _read_note(data_dir: Path) -> RunningServer | None:
    try:
        return RunningServer(**json.loads((data_dir / _NOTE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
