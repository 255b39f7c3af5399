"""Replaying: every recorded exchange is sent again, and what comes back is held against what was recorded."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2
import numpy as np

from router.evaluation.answers.scoring import f1
from router.replay.answers import Reader, own_readers, readers_of
from router.replay.recorded import Response
from router.replay.structure import Difference, Learnt, Rules, parse
from standard.domain.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from router.http.contract.compiled import Contract
    from router.replay.recorded import Exchange

    Embed = Callable[[Sequence[str]], Awaitable[NDArray[np.float32]]]

EXCHANGE_SECONDS = 180.0
"""Longest time of one exchange."""
MAX_RESPONSE_BYTES = 67_108_864


@dataclass(frozen=True, slots=True)
class Replayed:
    """One exchange sent again. `cosine` and `f1` (0-1, of words, as SQuAD scores it) compare the answers.

    Both are None where one of the two has no answer.
    """

    exchange: Exchange
    response: Response
    differences: tuple[Difference, ...]
    cosine: float | None
    f1: float | None


async def replay(
    url: str,
    exchanges: Sequence[Exchange],
    contracts: Sequence[Contract],
    embed: Embed,
    *,
    headers: Mapping[str, str],
    progress: Callable[[int], None] = lambda _: None,
) -> list[Replayed]:
    """Send the exchanges to a server, one after the other. Raises Unavailable where it cannot be reached."""
    readers = [*own_readers(), *readers_of(contracts)]
    learnt: dict[tuple[str, str, bool], Learnt] = {}
    for exchange in exchanges:
        learnt.setdefault(_group(exchange, readers), Learnt()).learn(exchange.response, parse(exchange.response))
    replayed: list[Replayed] = []
    async with httpx2.AsyncClient(base_url=url, timeout=EXCHANGE_SECONDS, trust_env=False) as client:
        for number, exchange in enumerate(exchanges, start=1):
            response = await send(client, exchange, headers)
            reader = _reader(exchange, readers)
            rules = reader.rules if reader is not None else Rules()
            differences = learnt[_group(exchange, readers)].differences(exchange.response, response, rules)
            cosine, f1 = await _similarity(reader, exchange.response, response, embed)
            replayed.append(Replayed(exchange, response, tuple(differences), cosine, f1))
            progress(number)
    return replayed


def _reader(exchange: Exchange, readers: Sequence[Reader]) -> Reader | None:
    path = exchange.path.split("?", 1)[0]
    return next((each for each in readers if each.method == exchange.method and each.pattern.match(path)), None)


def _group(exchange: Exchange, readers: Sequence[Reader]) -> tuple[str, str, bool]:
    """Exchanges whose responses have one structure: the same endpoint, media type, and success or failure."""
    reader = _reader(exchange, readers)
    path = reader.pattern.pattern if reader is not None else exchange.path.split("?", 1)[0]
    media = exchange.response.content_type.split(";", 1)[0].strip().lower()
    return f"{exchange.method} {path}", media, exchange.response.status < 400


async def send(
    client: httpx2.AsyncClient, exchange: Exchange, headers: Mapping[str, str], *, seconds: float = EXCHANGE_SECONDS
) -> Response:
    """Send one request as it was recorded and read the whole response, within `seconds`. Raises Unavailable."""
    began = time.perf_counter()
    first: float | None = None
    pieces: list[bytes] = []
    size = 0
    content = {} if exchange.body is None else {"json": exchange.body}
    request = client.build_request(exchange.method, exchange.path, headers={**exchange.headers, **headers}, **content)
    request.headers["accept-encoding"] = "identity"  # the bytes are compared as they come
    where = f"{client.base_url}: exchange {exchange.id}"
    try:
        # httpx's own timeout is of one read: a server that drips would never be given up on.
        async with asyncio.timeout(seconds):
            response = await client.send(request, stream=True)
            try:
                async for piece in response.aiter_raw():
                    first = first if first is not None else time.perf_counter() - began
                    size += len(piece)
                    if size > MAX_RESPONSE_BYTES:
                        break
                    pieces.append(piece)
            finally:
                await response.aclose()
    except TimeoutError:
        raise Unavailable(f"{where}: did not end within {seconds:g} s") from None
    except httpx2.HTTPError as error:
        raise Unavailable(f"{where}: {str(error) or type(error).__name__}") from None
    return Response(
        response.status_code,
        response.headers.get("content-type", ""),
        b"".join(pieces).decode("utf-8", "replace"),
        time.perf_counter() - began,
        first,
    )


async def _similarity(
    reader: Reader | None, recorded: Response, response: Response, embed: Embed
) -> tuple[float | None, float | None]:
    if reader is None or recorded.status >= 400 or response.status >= 400:
        return None, None
    theirs, ours = reader.answer(parse(recorded)), reader.answer(parse(response))
    if not theirs or not ours:
        return None, None
    vectors = await embed([theirs, ours])
    return float(np.clip(vectors[0] @ vectors[1], -1.0, 1.0)), f1(ours, [theirs])
