"""LiteLLM's proxy on a free port of loopback, run by the peers' own Python; nothing of ours is imported.

    CONFIG_FILE_PATH=config.json PYTHON litellm_peer.py

prints {"port", "version"} when it serves, and serves until it is ended.
"""

import json
import socket
import sys
from importlib.metadata import version

import uvicorn
from litellm.proxy.proxy_server import app  # type: ignore[import-not-found]


class Telling(uvicorn.Server):
    """Says where it listens once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then tell."""
        await super().startup(sockets)
        port = sockets[0].getsockname()[1] if sockets else 0
        told.write(json.dumps({"port": port, "version": version("litellm")}) + "\n")
        told.flush()


told, sys.stdout = sys.stdout, sys.stderr  # what the proxy prints is not what is read
listening = socket.create_server(("127.0.0.1", 0))
Telling(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])
