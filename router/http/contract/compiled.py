"""A contract as it is served and called: what the file says, checked and compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path as FilePath

    from router.http.contract import schema
    from router.http.contract.paths import Path
    from router.http.contract.template import Template


@dataclass(frozen=True, slots=True)
class History:
    """Where earlier turns are, and what their roles are called."""

    paths: tuple[Path, ...]
    role: Path
    text: Path
    user: frozenset[str]
    assistant: frozenset[str]
    pairs: bool
    drop_last: bool
    user_word: str
    assistant_word: str


@dataclass(frozen=True, slots=True)
class Asks:
    """Where a request's parts are."""

    question: tuple[Path, ...]
    history: History | None
    parts: Mapping[str, tuple[Path, ...]]
    """collection, session, request_id, top_k, filter, route, threshold."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body's template; `is_json` tells JSON from text."""

    template: Template
    is_json: bool
    content_type: str
    status: int
    headers: Mapping[str, Template]


@dataclass(frozen=True, slots=True)
class Frame:
    """What is sent on an event."""

    event: str
    template: Template | None
    is_json: bool


@dataclass(frozen=True, slots=True)
class Stream:
    """How a run is streamed; `when` tells which requests, None = all."""

    framing: str
    newline: str
    heartbeat: str
    content_type: str
    status: int
    headers: Mapping[str, Template]
    when: tuple[Path, bool | int | str] | None
    frames: Mapping[str, tuple[Frame, ...]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Where a request's inputs are; `name` is the key by which paths find one of them.

    `split` are keys whose list, where it is one, has an item an input.
    """

    path: Path
    name: str
    split: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Upstream:
    """How the gateway calls the endpoint itself."""

    template: Template
    headers: Mapping[str, Template]


@dataclass(frozen=True, slots=True)
class ContractRoute:
    """One path of a contract."""

    method: str
    path: str
    search: bool
    asks: Asks
    fixed: schema.FixedTable
    unary: Body | None
    stream: Stream | None
    wants_passages: bool
    upstream: Upstream | None
    batch: Batch | None


@dataclass(frozen=True, slots=True)
class GrpcMethod:
    """A method of a gRPC server that the gateway calls: what is sent, and where in a message the answer stands.

    `descriptors` is a file with a serialized FileDescriptorSet; None = the server is asked (reflection). Paths lead
    into a message's JSON, its fields named as in the .proto file. `outcome` and `notices` lead to how the answer ended.
    """

    service: str
    method: str
    descriptors: FilePath | None
    template: Template
    metadata: Mapping[str, Template]
    answer: tuple[Path, ...]
    token: tuple[Path, ...]
    end: tuple[Path, ...]
    error: tuple[Path, ...]
    outcome: tuple[Path, ...]
    notices: tuple[Path, ...]
    user_word: str
    assistant_word: str


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """How errors of some statuses (none = all) are told; `status` None = as it is."""

    when: frozenset[int]
    status: int | None
    template: Template
    headers: Mapping[str, Template]


@dataclass(frozen=True, slots=True)
class Contract:
    """A compiled contract."""

    name: str
    file: str
    routes: tuple[ContractRoute, ...]
    methods: tuple[GrpcMethod, ...]
    errors: tuple[ErrorRule, ...]
    compare: schema.CompareTable
