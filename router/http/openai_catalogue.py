"""`/v1/models` and `/v1/vector_stores/{id}/search` as the OpenAI API has them; a collection is a vector store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from router.http.asking import found, to_search
from router.http.filters import to_filter_message
from router.http.openai_chat import MODELS, model_named
from router.http.values import a_list, a_mapping, a_number, a_text, an_integer
from router.http.wire import JSON, to_json_bytes
from standard.domain.errors import InvalidInput

if TYPE_CHECKING:
    from router.http.asking import Call, HttpParts
    from standard.domain.passage import RetrievedPassage

_DEFAULT_RESULTS: Final = 10
_MOST_RESULTS: Final = 50
_MOST_QUERIES: Final = 8
_MADE: Final = 1_767_225_600
"""When the models came to be; clients want a number here."""


async def list_models(_parts: HttpParts, call: Call) -> None:
    """The models: one that decides, and one a route."""
    body = {"object": "list", "data": [_model(name) for name in MODELS]}
    await call.reply.whole(200, to_json_bytes(body), JSON, _named(call))


async def get_model(_parts: HttpParts, call: Call) -> None:
    """One model."""
    name = model_named(call.request.path_params["model"])
    await call.reply.whole(200, to_json_bytes(_model(name)), JSON, _named(call))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _MADE, "owned_by": "pointsman"}


def _named(call: Call) -> list[tuple[str, str]]:
    return [("x-request-id", call.request_id)] if call.request_id else []


async def search_vector_store(parts: HttpParts, call: Call) -> None:
    """Search a collection."""
    body = call.body
    given = body.get("query")
    queries = [given] if isinstance(given, str) else a_list(given, "query")
    if not 1 <= len(queries) <= _MOST_QUERIES:
        raise InvalidInput("query", f"must be text, or a list of 1 to {_MOST_QUERIES} texts")
    wanted = an_integer(body.get("max_num_results"), "max_num_results")
    if wanted is None:
        wanted = _DEFAULT_RESULTS
    if not 1 <= wanted <= _MOST_RESULTS:
        raise InvalidInput("max_num_results", f"{wanted} is not within 1 to {_MOST_RESULTS}")
    filter_ = to_filter_message(body.get("filters"), "filters")
    ranking = a_mapping(body.get("ranking_options"), "ranking_options")
    least = a_number(ranking.get("score_threshold"), "ranking_options.score_threshold") or 0.0
    collection = call.request.path_params["id"]
    texts = [a_text(query, f"query[{index}]") for index, query in enumerate(queries)]
    searches = [to_search(parts, call, text, collection, wanted, filter_) for text in texts]
    passages = [passage for passage in await found(parts, call, searches) if passage.score >= least]
    page = {
        "object": "vector_store.search_results.page",
        "search_query": texts,
        "data": [_result(passage) for passage in passages[:wanted]],
        "has_more": False,
        "next_page": None,
    }
    await call.reply.whole(200, to_json_bytes(page), JSON, _named(call))


def _result(retrieved: RetrievedPassage) -> dict[str, Any]:
    """A passage as a search result: its document is the file, plain metadata are the attributes."""
    passage = retrieved.passage
    attributes = {key: value for key, value in passage.metadata.items() if isinstance(value, str | float | bool | int)}
    return {
        "file_id": passage.document_id,
        "filename": passage.title.raw or passage.document_id,
        "score": retrieved.score,
        "attributes": attributes,
        "content": [{"type": "text", "text": passage.text.raw}],
        "passage_id": passage.passage_id,
        "uri": passage.uri,
    }
