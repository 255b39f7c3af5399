"""Advisory locks on files (flock) with a deadline; the kernel releases them when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_POLL_SECONDS = 0.02


def open_lock_file(path: Path) -> int:
    """Open (or create) a lock file and return its descriptor, which exec'd children do not inherit.

    A file that root creates is given to the owner of its folder, so that this owner can lock it later.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return descriptor


def try_lock(descriptor: int, *, exclusive: bool) -> bool:
    """Take the lock if nobody stands in the way; False otherwise. Converting a held lock may lose it on False."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(descriptor: int, *, exclusive: bool, deadline: float) -> bool:
    """Take the lock, waiting until time.monotonic() reaches `deadline`; False if it could not be had by then."""
    while not try_lock(descriptor, exclusive=exclusive):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def unlock(descriptor: int) -> None:
    """Give the lock back and keep the file open."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_exclusively_held(path: Path) -> bool:
    """Tell whether somebody holds the file's lock exclusively at this moment."""
    descriptor = open_lock_file(path)
    try:
        return not try_lock(descriptor, exclusive=False)
    finally:
        os.close(descriptor)
