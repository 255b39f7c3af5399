"""Certificates for gRPC and HTTP, read anew when their files change.

What goes wrong without it: a certificate runs out while the process that read it at its start goes on; or its
replacement is half written, or belongs to another key, and no client gets in any more. So files are looked at as
connections come, new ones count only when they fit together, and else the old ones stay and the log says why.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from router.settings import BadSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

    from router.settings import TlsSettings

LOOK_SECONDS: Final = 1.0
"""How often the files are looked at, at most."""
_log = structlog.get_logger("pointsman.tls")


@dataclass(frozen=True, slots=True)
class Pems:
    """What the files hold; `client_ca` None where clients need no certificate."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


class Certificates:
    """The certificate in force, and those of clients that are asked for. May be used from any thread."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read and check the files. Raises BadSettings, naming the key, where they are missing or do not fit."""
        self._settings = settings
        self._lock = threading.Lock()
        self._seen = self._stamps()
        self._pems = self._read()
        self._version = 0
        self._looked = time.monotonic()

    @property
    def asks_for_clients(self) -> bool:
        """Whether clients must bring a certificate."""
        return bool(self._settings.client_ca)

    def current(self) -> tuple[int, Pems]:
        """The certificates in force and their version, which grows by one a change; looks at the files now and then."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= LOOK_SECONDS:
                self._looked = now
                self._look()
            return self._version, self._pems

    def _look(self) -> None:
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            pems = self._read()
        except BadSettings as error:
            _log.warning("the new certificate files are wrong; the old ones stay in force", problems=error.problems)
            return
        if pems != self._pems:
            self._pems = pems
            self._version += 1
            _log.info("certificates changed", version=self._version)

    def _paths(self) -> dict[str, Path]:
        named = {name: getattr(self._settings, name) for name in ("certificate", "key", "client_ca")}
        return {name: Path(path) for name, path in named.items() if path}

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        stamps: list[tuple[int, int, int] | None] = []
        for path in self._paths().values():
            try:
                found = path.stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return stamps

    def _read(self) -> Pems:
        held: dict[str, bytes] = {}
        for name, path in self._paths().items():
            try:
                held[name] = path.read_bytes()
            except OSError as error:
                problem = f"tls.{name} (POINTSMAN_TLS__{name.upper()}): {path}: {error.strerror}"
                raise BadSettings([problem]) from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load(context)
        return Pems(held["certificate"], held["key"], held.get("client_ca"))

    def load(self, context: ssl.SSLContext) -> None:
        """Load the files into a context. Raises BadSettings where they do not fit together."""
        paths = self._paths()
        try:
            # A key with a passphrase would ask for it on the terminal: there is none.
            context.load_cert_chain(paths["certificate"], paths["key"], password=lambda: b"")
        except (OSError, ssl.SSLError, ValueError) as error:
            problem = "tls.certificate, tls.key (POINTSMAN_TLS__CERTIFICATE, __KEY)"
            told = f"{problem}: are no PEM certificate and its key without a passphrase: {error}"
            raise BadSettings([told]) from None
        if "client_ca" in paths:
            try:
                context.load_verify_locations(paths["client_ca"])
            except (OSError, ssl.SSLError) as error:
                problem = "tls.client_ca (POINTSMAN_TLS__CLIENT_CA)"
                raise BadSettings([f"{problem}: {paths['client_ca']} holds no PEM certificates: {error}"]) from None
            context.verify_mode = ssl.CERT_REQUIRED


def open_certificates(settings: TlsSettings) -> Certificates | None:
    """The certificates, or None where TLS is not configured. Raises BadSettings where it is half configured."""
    if not settings.certificate and not settings.key:
        if settings.client_ca:
            raise BadSettings(["tls.client_ca (POINTSMAN_TLS__CLIENT_CA): needs tls.certificate and tls.key as well"])
        return None
    for name in ("certificate", "key"):
        if not getattr(settings, name):
            raise BadSettings([f"tls.{name} (POINTSMAN_TLS__{name.upper()}): is empty, though TLS is configured"])
    return Certificates(settings)


def grpc_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Credentials of a gRPC server that ask for the certificates at each new connection."""
    import grpc

    known, pems = certificates.current()

    def configuration(held: Pems) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(held.key, held.certificate)], held.client_ca)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal known
        version, fresh = certificates.current()
        if version == known:
            return None
        known = version
        return configuration(fresh)

    # The stubs do not know that None means no change.
    return grpc.dynamic_ssl_server_credentials(configuration(pems), fetch, certificates.asks_for_clients)  # type: ignore[arg-type]


@asynccontextmanager
async def http_context(certificates: Certificates) -> AsyncIterator[ssl.SSLContext]:
    """Yield the context of an HTTP server; new connections see new certificates for as long as the block runs.

    A client authority that was taken out of the file is trusted here until the process ends: OpenSSL only adds.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificates.load(context)
    following = asyncio.create_task(_follow(certificates, context), name="certificates")
    try:
        yield context
    finally:
        following.cancel()
        await asyncio.wait([following])


async def _follow(certificates: Certificates, context: ssl.SSLContext) -> None:
    known, _ = certificates.current()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        version, _ = certificates.current()
        if version == known:
            continue
        try:
            certificates.load(context)
        except BadSettings:
            continue  # changed again at this moment; what is in force says so when it looks
        known = version


def client_credentials(settings: TlsSettings) -> grpc.ChannelCredentials | None:
    """How client commands reach a gateway with these settings; None = without TLS. Raises BadSettings."""
    if not settings.certificate:
        return None
    import grpc

    try:
        roots = Path(settings.server_ca).read_bytes() if settings.server_ca else None
        chain = Path(settings.certificate).read_bytes() if settings.client_ca else None
        key = Path(settings.key).read_bytes() if settings.client_ca else None
    except OSError as error:
        raise BadSettings([f"[tls]: {error.filename}: {error.strerror}"]) from None
    return grpc.ssl_channel_credentials(roots, key, chain)
