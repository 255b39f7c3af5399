"""A call of the upstream as a span, and the context that goes along: its own spans stand below ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from router.upstream.failures import Retryable, UpstreamUnavailable
from standard import semconv, spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from standard.spans import Span, Value


def of_http(method: str, path: str, url: str) -> tuple[str, dict[str, Value]]:
    """Name and attributes of a request; `path` is the contract's, `url` the upstream's address."""
    return f"{method} {path}", {semconv.HTTP_METHOD: method, **_address(url)}


def of_grpc(method: str, url: str) -> tuple[str, dict[str, Value]]:
    """Name and attributes of a call; `method` is package.Service/Method."""
    return method, {semconv.RPC_SYSTEM: "grpc", semconv.RPC_METHOD: method, **_address(url)}


def _address(url: str) -> dict[str, Value]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme in {"https", "grpcs"} else 80)
    return {semconv.SERVER_ADDRESS: parts.hostname or "", semconv.SERVER_PORT: port}


@contextmanager
def called(name: str, attributes: Mapping[str, Value]) -> Iterator[Span]:
    """Hold the span of one call, which fails as the call does; it is not made current, so generators may hold it."""
    opened = spans.begin(name, attributes, client=True)
    try:
        yield opened
    except BaseException as error:
        opened.fail(_kind(error))
        raise
    finally:
        if opened.recording:
            opened.end()


def _kind(error: BaseException) -> str:
    failure = error.error if isinstance(error, Retryable) else error
    return failure.kind if isinstance(failure, UpstreamUnavailable) else spans.failure(failure)
