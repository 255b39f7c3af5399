"""TLS for gRPC and HTTP: real handshakes, certificates changed under way, clients that must show theirs."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import pytest
import trustme
from pointsman.client import Pointsman
from structlog.testing import capture_logs

from router.access.tls import Certificates, open_certificates
from router.cli.connect import connected
from router.process.serving import open_server_process
from router.settings import BadSettings, Settings, TlsSettings
from tests.integration.router.conftest import settings_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from router.process.serverlock import RunningServer


class Files:
    """Certificate files as an operator, or a tool of theirs, writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.clients = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.clients.cert_pem.write_to_path(str(folder / "clients.pem"))
        self.issue()

    def issue(self, authority: trustme.CA | None = None) -> None:
        """Write a new certificate and its key."""
        issued = (authority or self.authority).issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(str(self.folder / "key.pem"))
        with (self.folder / "cert.pem").open("wb") as chain:
            for pem in issued.cert_chain_pems:
                chain.write(pem.bytes())

    def settings(self, *, mutual: bool = False) -> dict[str, str]:
        named = {"certificate": "cert.pem", "key": "key.pem", "server_ca": "ca.pem"}
        if mutual:
            named["client_ca"] = "clients.pem"
        return {key: str(self.folder / name) for key, name in named.items()}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "tls").mkdir()
    return Files(tmp_path / "tls")


@asynccontextmanager
async def serving(
    database_url: str, tmp_path: Path, tls: dict[str, str]
) -> AsyncIterator[tuple[RunningServer, Settings]]:
    settings = settings_for(database_url, tmp_path, tls=tls, http={"port": 0})
    async with open_server_process(settings) as server:
        yield server, settings


async def reached(server: RunningServer, authority: trustme.CA, client: trustme.LeafCert | None = None) -> bool:
    """Whether a gRPC client that trusts `authority` and brings `client` gets an answer, over a new connection."""
    roots = authority.cert_pem.bytes()
    chain = None if client is None else client.cert_chain_pems[0].bytes()
    key = None if client is None else client.private_key_pem.bytes()
    credentials = grpc.ssl_channel_credentials(roots, key, chain)
    async with Pointsman(server.target, credentials=credentials) as pointsman:
        try:
            await pointsman.classify("Where is the pump?", timeout_seconds=10)
        except grpc.aio.AioRpcError as error:
            code = error.code()
        else:
            return True
    assert code is grpc.StatusCode.UNAVAILABLE
    return False


async def browsed(server: RunningServer, authority: trustme.CA, client: trustme.LeafCert | None = None) -> bool:
    """The same over HTTPS."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if client is not None:
        client.configure_cert(context)

    def fetch() -> bool:
        try:
            with urllib.request.urlopen(f"{server.http_url}/healthz", timeout=10, context=context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ssl.SSLError, ConnectionError):
            return False

    return await asyncio.to_thread(fetch)


async def test_a_new_certificate_is_served_without_a_restart_and_a_bad_one_never(
    database_url: str, tmp_path: Path, files: Files
) -> None:
    old, new = files.authority, trustme.CA()
    async with serving(database_url, tmp_path, files.settings()) as (server, settings):
        assert server.http_url is not None
        assert server.http_url.startswith("https://127.0.0.1:")
        assert await reached(server, old)
        assert await browsed(server, old)
        assert not await reached(server, new)
        async with connected(settings, None) as pointsman:  # as client commands do, by the settings
            assert (await pointsman.classify("Where is the pump?")).HasField("decision")

        with capture_logs() as logs:
            (files.folder / "key.pem").write_text("half a key")
            await asyncio.sleep(1.2)
            assert await reached(server, old)
            assert await browsed(server, old)
        assert [entry["log_level"] for entry in logs if "old ones stay" in entry["event"]] == ["warning"]

        files.issue(new)
        await asyncio.sleep(2.3)
        assert await reached(server, new)
        assert await browsed(server, new)
        assert not await reached(server, old)
        assert not await browsed(server, old)


async def test_clients_must_bring_a_certificate_where_they_are_asked_for_one(
    database_url: str, tmp_path: Path, files: Files
) -> None:
    welcome, stranger = files.clients.issue_cert("client"), trustme.CA().issue_cert("client")
    async with serving(database_url, tmp_path, files.settings(mutual=True)) as (server, _):
        for reach in (reached, browsed):
            assert await reach(server, files.authority, welcome)
            assert not await reach(server, files.authority, stranger)
            assert not await reach(server, files.authority)


def test_half_a_configuration_stops_the_start_and_says_what_is_missing(files: Files) -> None:
    given = files.settings()
    assert open_certificates(TlsSettings()) is None
    with pytest.raises(BadSettings, match=r"tls\.key .*is empty"):
        open_certificates(TlsSettings(certificate=given["certificate"]))
    with pytest.raises(BadSettings, match=r"tls\.client_ca .*needs tls\.certificate"):
        open_certificates(TlsSettings(client_ca=given["server_ca"]))
    with pytest.raises(BadSettings, match="No such file"):
        open_certificates(TlsSettings(certificate="/nowhere/cert.pem", key=given["key"]))
    with pytest.raises(BadSettings, match="no PEM certificates"):
        open_certificates(TlsSettings(certificate=given["certificate"], key=given["key"], client_ca=given["key"]))
    shutil.copy(given["key"], files.folder / "other.pem")
    files.issue()
    with pytest.raises(BadSettings, match="no PEM certificate and its key"):
        Certificates(TlsSettings(certificate=given["certificate"], key=str(files.folder / "other.pem")))
