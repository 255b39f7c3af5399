"""Opens the upstream that the settings name: its contract's route over HTTP, or its method over gRPC."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from router.http.contract.load import load_contracts
from router.settings import BadSettings
from router.upstream.client import UpstreamClient
from router.upstream.described import NotDescribed
from router.upstream.reading import shapes_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

    from router.http.contract.compiled import ContractRoute, GrpcMethod
    from router.settings import UpstreamSettings
    from router.upstream.client import Endpoint
    from router.upstream.reading import Shapes

_CONTRACT: Final = "upstream.contract (POINTSMAN_UPSTREAM__CONTRACT)"
_HTTP: Final = ("http://", "https://")
_GRPC: Final = ("grpc://", "grpcs://")


@asynccontextmanager
async def open_upstream(settings: UpstreamSettings) -> AsyncIterator[UpstreamClient]:
    """Yield the client. Raises BadSettings, naming the key, for a contract that cannot be called."""
    _check_address(settings.url)
    over = _over_http if settings.url.startswith(_HTTP) else _over_grpc
    async with over(settings) as endpoint:
        yield UpstreamClient(settings, endpoint)


def _check_address(url: str) -> None:
    """Raise BadSettings for what is no address that can be called."""
    schemes = ", ".join((*_HTTP, *_GRPC))
    problem = "" if url.startswith((*_HTTP, *_GRPC)) else f"is no address with one of {schemes}"
    try:
        parts = urlsplit(url)
        if not problem and (not parts.hostname or parts.port == 0):
            problem = "names no host, or port 0"
        if (
            not problem
            and url.startswith(_GRPC)
            and (parts.path not in {"", "/"} or parts.query or "@" in parts.netloc)
        ):
            problem = "is no gRPC address: host and port, nothing after and no user before them"
    except ValueError as error:
        problem = f"is no address: {error}"
    if problem:
        raise BadSettings([f"upstream.url (POINTSMAN_UPSTREAM__URL): {url!r} {problem}"])


@asynccontextmanager
async def _over_http(settings: UpstreamSettings) -> AsyncIterator[Endpoint]:
    import httpx2

    from router.upstream.over_http import HttpEndpoint

    route, shapes = chosen_route(settings)
    timeout = httpx2.Timeout(
        settings.timeout_seconds,  # waits within a response are bounded where they happen
        connect=settings.connect_timeout_seconds,
        pool=settings.connect_timeout_seconds,
    )
    limits = httpx2.Limits(max_connections=settings.max_concurrency)
    trusted = _context(settings)
    async with httpx2.AsyncClient(
        base_url=settings.url, timeout=timeout, limits=limits, trust_env=False, verify=trusted
    ) as http:
        yield HttpEndpoint(settings, route, shapes, http)


@asynccontextmanager
async def _over_grpc(settings: UpstreamSettings) -> AsyncIterator[Endpoint]:
    import grpc

    from router.upstream.over_grpc import CHANNEL_OPTIONS, GrpcEndpoint

    method = chosen_method(settings)
    scheme, _, target = settings.url.partition("://")
    if scheme == "grpcs":
        channel = grpc.aio.secure_channel(target.rstrip("/"), _credentials(settings), options=CHANNEL_OPTIONS)
    else:
        channel = grpc.aio.insecure_channel(target.rstrip("/"), options=CHANNEL_OPTIONS)
    async with channel:
        try:
            endpoint = GrpcEndpoint(settings, method, channel)
        except (NotDescribed, OSError) as error:
            where = f"{settings.contract}: {method.service}/{method.method}"
            raise BadSettings([f"{_CONTRACT}: {where}: {error}"]) from None
        yield endpoint


def chosen_route(settings: UpstreamSettings) -> tuple[ContractRoute, Shapes]:
    """The contract's route that is called. Raises BadSettings."""
    routes = [
        route
        for contract in load_contracts([_named(settings)])
        for route in contract.routes
        if route.upstream is not None and settings.path in {"", route.path}
    ]
    if not routes:
        where = f"no route {settings.path}" if settings.path else "no route"
        problem = f"has {where} with [route.upstream]; add one with the body to send"
        raise BadSettings([f"{_CONTRACT}: {settings.contract}: {problem}"])
    try:
        return routes[0], shapes_of(routes[0])
    except ValueError as error:
        raise BadSettings([f"{_CONTRACT}: {settings.contract}: {routes[0].path}: {error}"]) from None


def chosen_method(settings: UpstreamSettings) -> GrpcMethod:
    """The contract's gRPC method that is called. Raises BadSettings."""
    methods = [
        method
        for contract in load_contracts([_named(settings)])
        for method in contract.methods
        if settings.path.removeprefix("/") in {"", f"{method.service}/{method.method}"}
    ]
    if not methods:
        where = f"no [[grpc]] with method {settings.path}" if settings.path else "no [[grpc]]"
        raise BadSettings([f"{_CONTRACT}: {settings.contract}: has {where}; add one with method and body"])
    return methods[0]


def _named(settings: UpstreamSettings) -> str:
    if not settings.contract:
        raise BadSettings([f"{_CONTRACT}: is empty; name the upstream's contract"])
    return settings.contract


def _context(settings: UpstreamSettings) -> ssl.SSLContext:
    """How an HTTPS upstream is known: by the authorities of `ca`, else by the system's."""
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings([f"upstream.ca, .certificate, .key: cannot be used: {error}"]) from None
    return context


def _credentials(settings: UpstreamSettings) -> grpc.ChannelCredentials:
    """The same for gRPC; without `ca` the authorities that grpc brings along."""
    import grpc

    _context(settings)  # grpc itself tells of bad files only in its log
    files = (settings.ca, settings.key, settings.certificate)
    ca, key, chain = (Path(name).read_bytes() if name else None for name in files)
    return grpc.ssl_channel_credentials(ca, key, chain)
