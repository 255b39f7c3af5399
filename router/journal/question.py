"""A question as the journal keeps it: JSON out of a Question, and with consent to its text a Question again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.journal.codec import kept
from standard.domain.errors import FailedPrecondition
from standard.domain.filter import And, Eq, Filter, In, Range
from standard.domain.passage import Scope
from standard.domain.question import Budget, Question, Route, Turn
from standard.domain.text import UntrustedText

if TYPE_CHECKING:
    from router.journal.codec import Consent


def kept_question(question: Question, consent: Consent) -> dict[str, Any] | None:
    """What consent leaves of a question, as JSON values; everything that its answer depends on where it is the text."""
    if consent == "nothing":
        return None
    values: dict[str, Any] = {
        "question": kept(question.text.raw, consent),
        "collection": question.scope.collection,
        "route": question.route.value if question.route else "",
        "groups": sorted(question.scope.groups),
        "narrowed": question.scope.narrowed,
    }
    if question.probe:
        values["probe"] = True
    if consent == "hash":
        return values
    budget = question.budget
    return values | {
        "filter": None if question.scope.filter is None else _filter_values(question.scope.filter),
        "history": [[turn.role, turn.text.raw] for turn in question.history],
        "threshold": question.threshold,
        "top_k": question.top_k,
        "budget": [budget.max_steps, budget.max_tokens, budget.max_seconds, budget.max_cost_usd],
        "session_id": question.session_id,
        "dry_run": question.dry_run,
    }


def question_of(values: dict[str, Any] | None, tenant: str, request_id: str, deadline: float | None) -> Question:
    """The question that `kept_question` kept with its text. Raises FailedPrecondition where it kept less."""
    if values is None or "top_k" not in values:
        raise FailedPrecondition(f"run {request_id!r} can't go on: the journal keeps no text of it; ask again")
    try:
        return Question(
            text=UntrustedText(values["question"]),
            scope=Scope(
                tenant=tenant,
                collection=values["collection"],
                filter=None if values["filter"] is None else _filter_of(values["filter"]),
                groups=frozenset(values["groups"]),
                narrowed=values.get("narrowed", False),
            ),
            history=tuple(Turn(role, UntrustedText(text)) for role, text in values["history"]),
            route=Route(values["route"]) if values["route"] else None,
            threshold=values["threshold"],
            top_k=values["top_k"],
            budget=Budget(*values["budget"]),
            session_id=values["session_id"],
            request_id=request_id,
            dry_run=values["dry_run"],
            deadline=deadline,
            probe=values.get("probe", False),
            standalone=UntrustedText(values["standalone"]) if values.get("standalone") else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        message = f"run {request_id!r} can't go on: another release kept its question; ask again"
        raise FailedPrecondition(message) from error


def learned(question: Question) -> dict[str, Any]:
    """What the gateway settled of a question, for whoever goes on with it; nothing of a session's other runs."""
    return {} if question.standalone is None else {"standalone": question.standalone.raw}


def turns_of(asked: dict[str, Any] | None, answer: str, scope: Scope) -> tuple[Turn, ...]:
    """A question of a session and its answer as turns; none where the caller could not have had them."""
    kept = asked or {}
    mine = kept.get("collection") == scope.collection and kept.get("narrowed", False) == scope.narrowed
    text = kept.get("question")
    if not mine or not may_see(asked, scope.groups) or not isinstance(text, str) or not text or not answer:
        return ()
    return Turn("user", UntrustedText(text)), Turn("assistant", UntrustedText(answer))


def replies_of(values: dict[str, Any] | None) -> list[str]:
    """The user's answers to clarifications so far, in order."""
    return list((values or {}).get("replies", []))


def may_see(values: dict[str, Any] | None, groups: frozenset[str], collections: frozenset[str] | None = None) -> bool:
    """Whether a caller of these access groups and collections (None = all) could have had the run's answer.

    A caller held to some collections sees only what such a caller asked: another's answer may be an upstream's, which
    reads more than the collection.
    """
    kept = values or {}
    if collections is not None and not (kept.get("narrowed", False) and kept.get("collection") in collections):
        return False
    return frozenset(kept.get("groups", [])) <= groups


def _filter_values(condition: Filter) -> list[Any]:
    match condition:
        case Eq():
            return ["eq", condition.key, condition.value]
        case In():
            return ["in", condition.key, list(condition.values)]
        case Range():
            return ["range", condition.key, condition.at_least, condition.at_most]
        case And():
            return ["and", *(_filter_values(part) for part in condition.parts)]


def _filter_of(values: list[Any]) -> Filter:
    match values:
        case ["eq", key, value]:
            return Eq(key, value)
        case ["in", key, several]:
            return In(key, tuple(several))
        case ["range", key, low, high]:
            return Range(key, low, high)
        case ["and", *parts]:
            return And(tuple(_filter_of(part) for part in parts))
        case _:
            raise ValueError("no filter")
