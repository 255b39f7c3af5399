"""Reading PostgreSQL's lock file, and telling its process from others."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from standard.database.postmaster import FILE_NAME, Postmaster, is_postgres, read_postmaster

if TYPE_CHECKING:
    from pathlib import Path


def test_what_the_file_says_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("4711\n/data\n1700000000\n5432\n/run/x\n\n  1234  5\nready   \n")
    assert read_postmaster(tmp_path) == Postmaster(4711, 5432, "/run/x", "", ready=True)


def test_no_file_is_no_server(tmp_path: Path) -> None:
    assert read_postmaster(tmp_path) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(length=st.integers(0, 60))
def test_a_file_that_is_being_written_is_no_server_that_is_ready(tmp_path: Path, length: int) -> None:
    (tmp_path / FILE_NAME).write_text("4711\n/data\n1700000000\n5432\n/run/x\n\n  1234  5\nready   \n"[:length])
    found = read_postmaster(tmp_path)
    assert found is None or not found.ready or length > 46


def test_another_living_process_is_no_postgres() -> None:
    assert not is_postgres(os.getpid())
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    assert not is_postgres(finished.pid)
