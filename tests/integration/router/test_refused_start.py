"""Without authentication nobody else may reach the server: on another address than loopback it does not start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from router.process.serving import open_server_process
from router.process.supervisor import open_group
from router.settings import BadSettings
from tests.integration.router.conftest import settings_for

if TYPE_CHECKING:
    from pathlib import Path

OPEN: dict[str, dict[str, dict[str, Any]]] = {
    "gRPC": {"server": {"host": "0.0.0.0", "port": 0, "metrics_port": 0}},
    "metrics": {"server": {"metrics_host": "0.0.0.0", "port": 0, "metrics_port": 0}},
    "HTTP": {"server": {"port": 0, "metrics_port": 0}, "http": {"host": "0.0.0.0", "port": 0}},
}


@pytest.mark.parametrize("front", OPEN)
async def test_one_process_refuses(database_url: str, tmp_path: Path, front: str) -> None:
    with pytest.raises(BadSettings, match=r"0\.0\.0\.0"):
        async with open_server_process(settings_for(database_url, tmp_path, **OPEN[front])):
            pytest.fail("it was reachable for everybody")


@pytest.mark.parametrize("front", OPEN)
async def test_workers_refuse_before_any_is_started(database_url: str, tmp_path: Path, front: str) -> None:
    with pytest.raises(BadSettings, match=r"0\.0\.0\.0"):
        async with open_group(settings_for(database_url, tmp_path, **OPEN[front]), {}):
            pytest.fail("it was reachable for everybody")
