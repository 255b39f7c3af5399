"""A legacy request read by its contract, into the gateway's own request."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pointsman.v1 import gateway_pb2

from router.http.contract.paths import MISSING, Path, Sources, look_up, walk
from router.http.contract.template import as_uuid
from router.http.filters import to_filter_message
from router.http.openai_chat import content_text
from router.http.query import route_named
from router.http.values import a_list, a_number, a_text, an_integer, kind_of
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.http.asking import Call
    from router.http.contract.compiled import Asks, Batch, ContractRoute, History, Stream

MOST_INPUTS: Final = 100
_TURNS_OF_A_PAIR = 2
_ID = re.compile(r"[\x21-\x7e]{1,128}")


def sources_of(call: Call) -> Sources:
    """Where paths of a request start."""
    request = call.request
    return Sources(call.body, request.headers, request.path_params, dict(request.query_params))


def wants_stream(stream: Stream, sources: Sources) -> bool:
    """Whether a request asks for the stream."""
    if stream.when is None:
        return True
    path, wanted = stream.when
    given = look_up(path, sources)
    if isinstance(wanted, bool) or isinstance(given, bool):
        if path.root:  # headers and parameters are text
            return str(given).lower() == str(wanted).lower()
        return given is wanted
    return str(given) == str(wanted)


def inputs_of(batch: Batch, sources: Sources) -> list[Sources]:
    """The inputs of a batch, each as a request of its own. Raises InvalidInput."""
    given = look_up(batch.path, sources)
    if not isinstance(given, list):
        raise InvalidInput(batch.path.text, "is missing or no list")
    if len(given) > MOST_INPUTS:
        raise InvalidInput(batch.path.text, f"holds {len(given)} inputs; at most {MOST_INPUTS} are allowed")
    split = {key: sources.body[key] for key in batch.split if isinstance(sources.body.get(key), list)}
    for key, values in split.items():
        if len(values) != len(given):
            raise InvalidInput(key, f"holds {len(values)}, for {len(given)} inputs")
    return [
        replace(sources, body={**sources.body, **{key: split[key][index] for key in split}, batch.name: each})
        for index, each in enumerate(given)
    ]


def read_request(route: ContractRoute, sources: Sources) -> gateway_pb2.AnswerRequest:
    """The request in the gateway's own words. Raises InvalidInput naming the path in the legacy request."""
    asks, fixed = route.asks, route.fixed
    path, given = _first(asks.question, sources)
    if given is not MISSING and not isinstance(given, str | list):
        raise InvalidInput(path.text, f"must be text, not {kind_of(given)}")
    question = content_text(None if given is MISSING else given, path.text)
    parts = {name: _part(asks, name, sources) for name in asks.parts}
    top_k_field, top_k = parts["top_k"]
    number = _integer(top_k, top_k_field)
    threshold_field, threshold = parts["threshold"]
    filter_field, filter_ = parts["filter"]
    return gateway_pb2.AnswerRequest(
        question=question,
        history=[] if asks.history is None else read_history(asks.history, sources),
        collection=_word(*parts["collection"]) or fixed.collection,
        session_id=_identifier(*parts["session"]),
        request_id=_identifier(*parts["request_id"]),
        top_k=fixed.top_k if number is None else number,
        filter=to_filter_message(filter_, filter_field),
        route=route_named(fixed.route or _word(*parts["route"]), parts["route"][0]),
        threshold=fixed.threshold if threshold is None else a_number(threshold, threshold_field),
    )


def in_legacy_words(error: InvalidInput, asks: Asks) -> InvalidInput:
    """An error whose field is named as the legacy request names it."""
    paths = {"question": asks.question, "query": asks.question, "session_id": asks.parts["session"], **asks.parts}
    named = paths.get(error.field.split(".", 1)[0].split("[", 1)[0])
    return InvalidInput(named[0].text, error.problem) if named else error


def of_input(field: str, batch: Batch, number: int) -> str:
    """A field of a batch's input (from 0), named as the whole request names it."""
    place, below = f"{batch.path.text}[{number}]", field.removeprefix(batch.name)
    return place + below if field.startswith(batch.name) and below[:1] in {"", ".", "["} else f"{place}: {field}"


def _first(paths: Sequence[Path], sources: Sources) -> tuple[Path, object]:
    """The first path that leads to something other than null and "", and what is there."""
    for path in paths:
        value = look_up(path, sources)
        if value is not MISSING and value is not None and value != "":
            return path, value
    return paths[0], MISSING


def _part(asks: Asks, name: str, sources: Sources) -> tuple[str, Any]:
    paths = asks.parts[name]
    if not paths:
        return name, None
    path, value = _first(paths, sources)
    return path.text, None if value is MISSING else value


def _word(field: str, value: object) -> str:
    """A word; legacy clients also send numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return a_text(value, field)


def _identifier(field: str, value: object) -> str:
    """An id. What is none of ours (too long, with blanks, in other letters) stands for one: legacy ids are any text."""
    word = _word(field, value)
    return word if not word or _ID.fullmatch(word) else as_uuid(word)


def _integer(value: object, field: str) -> int | None:
    """A number; headers and query parameters bring it as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return an_integer(value, field)


def read_history(history: History, sources: Sources) -> list[gateway_pb2.Turn]:
    """Earlier turns; those of other roles (system, tool) are left out."""
    path, given = _first(history.paths, sources)
    items = a_list(None if given is MISSING else given, path.text)
    if history.drop_last:
        items = items[:-1]
    turns: list[gateway_pb2.Turn] = []
    for index, item in enumerate(items):
        field = f"{path.text}[{index}]"
        if history.pairs:
            pair = a_list(item, field)
            if len(pair) != _TURNS_OF_A_PAIR:
                raise InvalidInput(field, "must be a pair: what the user said, and the answer")
            roles = ("user", "assistant")
            turns += [
                gateway_pb2.Turn(role=role, text=a_text(each, field)) for role, each in zip(roles, pair, strict=True)
            ]
            continue
        role = walk(history.role.steps, item)
        text = walk(history.text.steps, item)
        word = "user" if role in history.user else "assistant" if role in history.assistant else ""
        if word:
            turns.append(gateway_pb2.Turn(role=word, text=content_text(None if text is MISSING else text, field)))
        elif role is MISSING or not isinstance(role, str):
            raise InvalidInput(f"{field}.{history.role.text}", "is missing or no text")
    return turns
