"""What the upstream is told of a question: the values of its contract's templates, and what goes with every call."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from router.asked import asked_text
from router.http.contract.paths import Sources
from router.http.contract.template import Template, Values, names_used, render_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.settings import UpstreamSettings
    from standard.domain.question import Question


def names_sent(template: Template, headers: Mapping[str, Template]) -> frozenset[str]:
    """The names of all values that a call sends."""
    return frozenset(names_used(template).union(*map(names_used, headers.values())))


def values_of(question: Question, names: frozenset[str], *, user: str, assistant: str) -> Values:
    """A question as templates see it; `names` are those that they use, `user` and `assistant` what roles are called."""
    words = {"user": user, "assistant": assistant}
    named = {
        # Where nothing of the history is sent, a follow-up has to stand by itself.
        "question": question.text.raw if "history" in names else asked_text(question),
        "session_id": session_of(question),
        "request_id": question.request_id,
        "collection": question.scope.collection,
        "top_k": question.top_k,
    }
    turns = [{"turn.role": words[turn.role], "turn.text": turn.text.raw} for turn in question.history]
    return Values(named, {"history": turns}, Sources({}, {}, {}, {}))


def session_of(question: Question) -> str:
    """The session as the upstream is told of it: the same for each of its questions, another for each tenant."""
    if not question.session_id:
        return ""
    named = f"{question.scope.tenant}\n{question.session_id}"  # neither holds a line break
    return hashlib.sha256(named.encode("utf-8", "replace")).hexdigest()[:32]


def headers_of(templates: Mapping[str, Template], values: Values, settings: UpstreamSettings) -> list[tuple[str, str]]:
    """What goes with a call beside its body, names in lower case: over HTTP as headers, over gRPC as metadata.

    The contract's own, and the key. Whatever else every call of the upstream should carry is added here.
    """
    headers = [(name, render_text(template, values)) for name, template in templates.items()]
    if settings.api_key is not None:
        headers.append(("authorization", f"Bearer {settings.api_key.get_secret_value()}"))
    return headers
