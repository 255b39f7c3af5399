"""The image's health check against a real server: ready, not ready, not there, and without HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

from deploy.docker.healthcheck import problem
from router.process.serving import open_server_process
from tests.integration.router.conftest import settings_for
from tests.support.tools import ROOT

if TYPE_CHECKING:
    from pathlib import Path


async def test_it_tells_a_ready_server_from_none(database_url: str, tmp_path: Path) -> None:
    assert "no server has started" in problem(tmp_path)
    async with open_server_process(settings_for(database_url, tmp_path, http={"port": 0})):
        assert await asyncio.to_thread(problem, tmp_path) == ""
        script = ROOT / "deploy" / "docker" / "healthcheck.py"
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, str(script)], env={"POINTSMAN_DATA_DIR": str(tmp_path)}, check=False
        )
        assert done.returncode == 0
    assert problem(tmp_path)


async def test_without_http_an_open_port_has_to_do(database_url: str, tmp_path: Path) -> None:
    async with open_server_process(settings_for(database_url, tmp_path, http={"enabled": False})):
        assert await asyncio.to_thread(problem, tmp_path) == ""


def test_a_server_that_died_is_not_healthy(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text('{"host": "127.0.0.1", "port": 9, "http_url": "http://127.0.0.1:9"}')
    assert "no answer" in problem(tmp_path)
    (tmp_path / "server.json").write_text("{")
    assert "no server" in problem(tmp_path)
