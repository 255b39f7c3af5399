"""A process's share in the embedded PostgreSQL, for as long as the process lives.

Prevents a gateway that has to be restarted because its database was: the keeper starts a server that died again, and
where the keeper was killed with it, whoever notices first starts both. Its URL stays as it was.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from standard.database.embedded import start_embedded
from standard.domain.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from standard.database.embedded import EmbeddedPostgres

_LOOK_SECONDS = 1.0
_START_SECONDS = 20.0
_log = logging.getLogger("pointsman.database")


class _Share:
    """Holds the server; `renew` and `close` block, and may be called from any thread."""

    def __init__(self, server: EmbeddedPostgres, data_directory: Path) -> None:
        self._server: EmbeddedPostgres | None = server
        self._data_directory = data_directory
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Start keeper and server again where no keeper is left. Raises DatabaseUnavailable."""
        with self._lock:
            if self._server is None or self._server.is_kept():
                return
            _log.warning("the embedded PostgreSQL has lost its keeper; starting both again")
            before = self._server
            self._server = start_embedded(self._data_directory, timeout_seconds=_START_SECONDS)
            before.close()

    def close(self) -> None:
        """Give the server up."""
        with self._lock:
            server, self._server = self._server, None
            if server is not None:
                server.close()


@asynccontextmanager
async def shared_server(data_directory: Path) -> AsyncIterator[str]:
    """Yield the URL of the data directory's embedded server, which is kept running for as long as the block runs."""
    server = await asyncio.to_thread(start_embedded, data_directory)
    share = _Share(server, data_directory)
    watching = asyncio.create_task(_watch(share), name="embedded PostgreSQL")
    try:
        yield server.url
    finally:
        watching.cancel()
        await asyncio.shield(asyncio.to_thread(share.close))


async def _watch(share: _Share) -> None:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            await asyncio.to_thread(share.renew)
        except DatabaseUnavailable as error:
            _log.warning("the embedded PostgreSQL could not be started again; trying again: %s", error.message)
