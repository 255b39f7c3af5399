"""Servers and checkers that tests run as processes: from the PATH, or as deploy/fetch.sh unpacked them.

Where one cannot be had its tests are skipped and counted as such; under CI (the variable CI is set) they fail.
"""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PACKAGES = {"prometheus": "prometheus", "promtool": "prometheus", "nginx": "nginx"}


def tool(name: str) -> str:
    """The path of prometheus, promtool or nginx."""
    package = ROOT / ".pointsman" / "tools" / _PACKAGES[name]
    unpacked = [path for part in ("bin", "sbin") if (path := package / "usr" / part / name).is_file()]
    found = str(unpacked[0]) if unpacked else shutil.which(name)
    if found is not None:
        return found
    message = f"{name} is not here: make setup-tools, or put it on the PATH"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def free_port() -> int:
    """A port that was free a moment ago, for servers that cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
