"""Locks on files, between descriptors and between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from standard.database.filelock import is_exclusively_held, lock_within, open_lock_file, try_lock, unlock

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys
from pathlib import Path
from standard.database.filelock import open_lock_file, try_lock
print(try_lock(open_lock_file(Path(sys.argv[1])), exclusive=True), flush=True)
sys.stdin.readline()
"""


def test_many_share_and_one_excludes(tmp_path: Path) -> None:
    first, second = (open_lock_file(tmp_path / "lock") for _ in range(2))
    try:
        assert try_lock(first, exclusive=False)
        assert try_lock(second, exclusive=False)
        assert not try_lock(second, exclusive=True)
        assert not is_exclusively_held(tmp_path / "lock")
        unlock(first)
        assert try_lock(second, exclusive=True)
        assert is_exclusively_held(tmp_path / "lock")
        began = time.monotonic()
        assert not lock_within(first, exclusive=False, deadline=began + 0.1)
        assert 0.1 <= time.monotonic() - began < 5
    finally:
        os.close(first)
        os.close(second)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert is_exclusively_held(tmp_path / "lock")
        process.kill()
        process.wait()
    assert not is_exclusively_held(tmp_path / "lock")
