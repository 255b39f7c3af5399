"""The process that keeps the embedded PostgreSQL: starts it, again where it died, and stops it with its last user.

Prevents a server that outlives everybody (its user was killed with -9) and one that dies under somebody (its first user
ended, a second still works; it was killed, or stopped by hand, while others go on). Users hold a shared lock on
`users.lock`; the kernel gives it up for them whatever ends them. The keeper tries now and then to lock that file
exclusively; once it can, nobody is left. It keeps the lock until the server is down, so that a newcomer waits and then
starts afresh. `keeper.lock` says that a keeper lives. A keeper that finds a server whose keeper was killed adopts it.

Run as `python -S -m standard.database.keeper SPEC`, SPEC being a JSON object; standard library alone, for a start in
milliseconds and a small process. Exit code of the first process, which returns once the keeper stands in the
background: 0 = it does, 3 = another keeper lives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Literal

from standard.database.account import Account, become
from standard.database.filelock import open_lock_file, try_lock
from standard.database.postmaster import FILE_NAME, is_postgres, read_postmaster

ANOTHER_KEEPER = 3
_POLL_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
# signal, seconds to wait: fast shutdown, immediate shutdown, kill
_STOPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))


class _Server:
    """The postmaster, a child of ours or an adopted one."""

    def __init__(self, cluster: Path, arguments: list[str], account: Account | None, log: Path) -> None:
        found = read_postmaster(cluster)
        self._cluster = cluster
        self._arguments = arguments
        self._account = account
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = 0
        if found is not None and is_postgres(found.pid):
            self._pid = found.pid
        else:
            self.start(mode="wb")

    def start(self, *, mode: Literal["wb", "ab"] = "ab") -> None:
        """Start the postmaster. Orphans of one that was killed hold the shared memory until they noticed: it ends."""
        # We hold keeper.lock and its process is gone or became something else: the file is left from a crash.
        # PostgreSQL itself would refuse to start where the number now belongs to another process of the same user.
        (self._cluster / FILE_NAME).unlink(missing_ok=True)
        with self._log.open(mode) as output:
            if os.geteuid() == 0:
                folder = self._log.parent.stat()
                os.fchown(output.fileno(), folder.st_uid, folder.st_gid)
            self._child = subprocess.Popen(  # noqa: S603 - the program and arguments are ours
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                preexec_fn=become(self._account) if self._account else None,  # noqa: PLW1509 - this process has one thread
            )
        self._pid = self._child.pid

    def is_alive(self) -> bool:
        """Tell whether the postmaster runs; reaps it if it was a child and ended."""
        if self._child is not None:
            return self._child.poll() is None
        return is_postgres(self._pid)

    def is_ready(self) -> bool:
        """Tell whether the postmaster takes connections, by its own word."""
        found = read_postmaster(self._cluster)
        return found is not None and found.ready and found.pid == self._pid

    def stop(self) -> None:
        """Stop the server, ever more firmly."""
        for number, seconds in _STOPS:
            if not self.is_alive():
                return
            os.kill(self._pid, number)
            until = time.monotonic() + seconds
            while self.is_alive() and time.monotonic() < until:
                time.sleep(0.01)


def _detach() -> None:
    """Continue in a child of its own session, so that neither a terminal nor a waiting parent holds us."""
    if os.fork() > 0:
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    os.chdir("/")


def main(spec_text: str) -> int:
    """Keep one server until its last user is gone."""
    spec = json.loads(spec_text)
    base = Path(spec["base"])
    own = open_lock_file(base / "keeper.lock")
    if not try_lock(own, exclusive=True):
        return ANOTHER_KEEPER
    users = open_lock_file(base / "users.lock")
    asked_to_stop: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        asked_to_stop.append(number)

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _detach()
    os.ftruncate(own, 0)
    os.pwrite(own, f"{os.getpid()}\n".encode(), 0)
    account = Account(*spec["account"]) if spec["account"] else None
    server = _Server(Path(spec["cluster"]), spec["arguments"], account, base / "postgres.log")
    was_ready, pause = False, _FIRST_PAUSE_SECONDS
    while not asked_to_stop and not try_lock(users, exclusive=True):
        if server.is_alive():
            if server.is_ready():
                was_ready, pause = True, _FIRST_PAUSE_SECONDS
            time.sleep(_POLL_SECONDS)
        elif was_ready:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            server.start()
        else:  # it never stood: whoever waits for it tells why
            break
    server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
