"""What a controller may propose. Nothing here does anything: guards dispose of a proposal, `agentic.tools` executes it.

Tenant, collection, filter and the number of passages are not among the fields on purpose: they come from the caller's
request alone, so no model can express them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field

from standard.domain.answer import Usage

MAX_QUERY_LENGTH = 400
"""Code points of a query that a controller may propose; a longer one is malformed output."""


@dataclass(frozen=True, slots=True)
class Search:
    """Search the collection. `mode`: hybrid, keyword (exact words) or semantic (best sentence). Costs one step.

    `branch` is the id of the plan's branch that the search belongs to, "" outside of a plan.
    """

    query: str
    reason: str = ""
    mode: Literal["hybrid", "keyword", "semantic"] = "hybrid"
    branch: str = ""
    kind: Literal["search"] = "search"


@dataclass(frozen=True, slots=True)
class SearchEach:
    """Run the searches of a plan's independent branches at once. Costs one step a search."""

    searches: tuple[Search, ...]
    reason: str = ""
    kind: Literal["search_each"] = "search_each"


@dataclass(frozen=True, slots=True)
class FindLinked:
    """Fetch passages that share titles and entities with the held sources `refs`. Costs one step."""

    refs: tuple[int, ...]
    reason: str = ""
    kind: Literal["link"] = "link"


@dataclass(frozen=True, slots=True)
class Explore:
    """Go on from the held sources `refs` (the best first) without a query of one's own. Costs one step.

    See `agentic.exploring`: links, the question's next passages and a second look, fused.
    """

    refs: tuple[int, ...]
    reason: str = ""
    kind: Literal["explore"] = "explore"


@dataclass(frozen=True, slots=True)
class Read:
    """Read the parent section of the held source `ref`, with the sections around it if asked. Costs one step."""

    ref: int
    neighbours: bool = False
    reason: str = ""
    kind: Literal["read"] = "read"


@dataclass(frozen=True, slots=True)
class Branch:
    """A sub-question of a plan. Its text may name earlier branches as {id}: their answers are filled in."""

    id: str
    question: str
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Adopt a plan in the place of an earlier one. Free: its branches cost a step each when they are searched.

    `by_rules`: nobody will answer its branches one by one; they only widen the search.
    """

    branches: tuple[Branch, ...]
    reason: str = ""
    by_rules: bool = False
    kind: Literal["plan"] = "plan"


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the user and wait."""

    question: str
    options: tuple[str, ...] = ()
    reason: str = ""
    kind: Literal["ask"] = "ask"


@dataclass(frozen=True, slots=True)
class Finish:
    """Stop searching and answer.

    `belief` is what the controller thinks of the evidence: sufficient (it answers the question), partial (the best
    there is, something is missing) or unanswerable (the collection does not hold it). `refs` are sources to answer from
    though they were not read: what was found of them says all.
    """

    belief: Literal["sufficient", "partial", "unanswerable"]
    reason: str = ""
    refs: tuple[int, ...] = ()
    kind: Literal["finish"] = "finish"


@dataclass(frozen=True, slots=True)
class Malformed:
    """The controller's output could not be understood; `problem` says why in our own words, never quoting it."""

    problem: str
    kind: Literal["malformed"] = "malformed"


Action: TypeAlias = Annotated[
    Search | SearchEach | FindLinked | Explore | Read | Plan | Ask | Finish | Malformed, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True)
class Proposal:
    """An action and what came with it.

    `extra_calls` counts further tool calls of the same turn (they are refused). `usage` is what proposing cost. `notes`
    are what the controller noted of sections that it was shown, by source number.
    `unknown` are references of the queries that nothing read so far and nothing in the collection contains, and
    `vectors` holds the L2-normalised float32 embedding of each query of the action as bytes, in order: both are looked
    up between proposal and guards, so that guards stay pure.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    action: Action
    extra_calls: int = 0
    usage: Usage = Usage()
    unknown: tuple[str, ...] = ()
    vectors: tuple[bytes, ...] = ()
    notes: tuple[tuple[int, str], ...] = ()


def searches_of(action: Action) -> tuple[Search, ...]:
    """The searches that an action would run, in order; none for other kinds of action."""
    match action:
        case Search():
            return (action,)
        case SearchEach():
            return action.searches
        case _:
            return ()


def steps_of(action: Action) -> int:
    """How many steps of the budget an action costs."""
    match action:
        case Search() | FindLinked() | Explore() | Read():
            return 1
        case SearchEach():
            return len(action.searches)
        case _:
            return 0


def describe(action: Action) -> str:
    """The action's label of pointsman_agentic_actions_total."""
    return action.kind
