"""What the lock file of a PostgreSQL server, `postmaster.pid`, says, and whether that server lives.

Format: https://www.postgresql.org/docs/18/storage-file-layout.html and src/include/utils/pidfile.h; line 1 is the
process id, 3 the start time, 4 the port, 5 the socket folder, 6 the listen address, 8 the state.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

FILE_NAME = "postmaster.pid"


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A server's process id, port, socket folder ("" without one), listen address ("" = none) and readiness."""

    pid: int
    port: int
    socket_folder: str
    address: str
    ready: bool


def read_postmaster(cluster: Path) -> Postmaster | None:
    """Return what the lock file of the cluster says; None where there is none or it is not fully written yet."""
    try:
        lines = (cluster / FILE_NAME).read_text().split("\n")
    except FileNotFoundError:
        return None
    try:
        return Postmaster(
            pid=int(lines[0]),
            port=int(lines[3]),
            socket_folder=lines[4].strip(),
            address=lines[5].strip(),
            ready=lines[7].strip() == "ready",
        )
    except (ValueError, IndexError):
        return None


def is_postgres(pid: int) -> bool:
    """Tell whether `pid` is a living process that runs PostgreSQL (a process id may have been given to another)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if Path("/proc/self/comm").exists():
        try:
            return Path(f"/proc/{pid}/comm").read_text().strip() == "postgres"
        except (FileNotFoundError, ProcessLookupError):
            return False
    answer = subprocess.run(  # noqa: S603 - fixed program, a number as argument
        ["/bin/ps", "-o", "comm=", "-p", str(pid)], capture_output=True, text=True, timeout=5, check=False
    )
    return answer.stdout.strip().endswith("postgres")
