"""The command line as a process, on a data directory and database of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class CommandLine:
    """Runs pointsman on a data directory and database of its own, each command for `seconds` at most."""

    def __init__(self, folder: Path, database_url: str, *, seconds: float = 120.0) -> None:
        self.folder = folder
        self.seconds = seconds
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("POINTSMAN_")},
            "POINTSMAN_DATA_DIR": str(folder / "data"),
            "POINTSMAN_DATABASE__URL": database_url,
            "POINTSMAN_SERVER__PORT": "0",
            "POINTSMAN_SERVER__METRICS_PORT": "0",
            "POINTSMAN_HTTP__PORT": "0",
        }

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "router.cli", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=self.seconds,
            check=False,
        )
        assert done.returncode == code, done.stderr + done.stdout
        assert "Traceback" not in done.stderr
        self.stderr = done.stderr
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "router.cli", *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def one(self, *arguments: str, stdin: str = "", code: int = 0) -> dict[str, Any]:
        lines = self(*arguments, stdin=stdin, code=code).splitlines()
        assert len(lines) == 1
        value: dict[str, Any] = json.loads(lines[0])
        return value

    def lines(self, *arguments: str, stdin: str = "", code: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, stdin=stdin, code=code).splitlines()]


@contextmanager
def served(pointsman: CommandLine) -> Iterator[None]:
    """Serve until the block ends."""
    server = pointsman.start("serve")
    try:
        assert server.stderr is not None
        while "Ctrl-C stops it" not in (line := server.stderr.readline()):
            assert line, "the server ended"
        yield
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            raise
        finally:
            if server.stderr is not None:
                server.stderr.close()


def jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
