"""What a contract file may say. Every key is described in docs/http.md; unknown ones are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

EventKind = Literal["start", "step", "token", "citation", "end", "error"]


def _listed(value: Any) -> Any:  # noqa: ANN401 - what TOML holds
    return (value,) if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""One path, or several of which the first that leads somewhere counts."""
HttpStatus = Annotated[int, Field(ge=200, le=599)]


class Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HistoryTable(Table):
    """[route.request.history]"""

    path: Paths
    role: str = "role"
    text: str = "content"
    user: tuple[str, ...] = ("user", "human")
    assistant: tuple[str, ...] = ("assistant", "ai")
    pairs: bool = False
    drop_last: bool = False


class RequestTable(Table):
    """[route.request]"""

    question: Paths
    history: HistoryTable | None = None
    collection: Paths = ()
    session: Paths = ()
    request_id: Paths = ()
    top_k: Paths = ()
    filter: Paths = ()
    route: Paths = ()
    threshold: Paths = ()


class BatchTable(Table):
    """[route.batch] a request with a list of inputs, each a question of its own."""

    path: str
    name: str = Field(pattern=r"^[^.\[\]@]+$")
    split: Paths = ()


class FixedTable(Table):
    """[route.fixed]"""

    collection: str = ""
    route: Literal["", "auto", "standard", "agentic"] = ""
    top_k: int = Field(0, ge=0, le=100)
    threshold: float | None = Field(None, ge=0.0, le=1.0)


class ResponseTable(Table):
    """[route.response]"""

    status: HttpStatus = 200
    body: str = ""
    text: str = ""
    content_type: str = ""
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _one_body(self) -> ResponseTable:
        if bool(self.body) == bool(self.text):
            raise ValueError("give either body (JSON) or text")
        return self


class WhenTable(Table):
    """[route.stream.when]"""

    path: str
    equals: bool | int | str = True


class FrameTable(Table):
    """[[route.stream.frame]]"""

    on: EventKind
    event: str = Field("", pattern=r"^[^\r\n]*$")
    data: str | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _one_content(self) -> FrameTable:
        if self.data is not None and self.text is not None:
            raise ValueError("give data (JSON) or text, not both")
        if self.data is None and self.text is None and not self.event:
            raise ValueError("give data, text or event")
        return self


class StreamTable(Table):
    """[route.stream]"""

    framing: Literal["sse", "ndjson", "raw"] = "sse"
    status: HttpStatus = 200
    when: WhenTable | None = None
    newline: Literal["lf", "crlf"] = "lf"
    heartbeat: str = Field("ping", pattern=r"^[^\r\n]*$")
    content_type: str = ""
    headers: dict[str, str] = {}
    frame: tuple[FrameTable, ...] = Field(min_length=1)


class UpstreamTable(Table):
    """[route.upstream] how the gateway itself calls this endpoint (see [upstream] of the settings)."""

    body: str
    headers: dict[str, str] = {}


class RouteTable(Table):
    """[[route]]"""

    method: Literal["GET", "POST", "PUT"] = "POST"
    path: str = Field(pattern=r"^/")
    action: Literal["answer", "search"] = "answer"
    request: RequestTable
    batch: BatchTable | None = None
    fixed: FixedTable = FixedTable.model_construct()
    response: ResponseTable | None = None
    stream: StreamTable | None = None
    upstream: UpstreamTable | None = None

    @model_validator(mode="after")
    def _answers(self) -> RouteTable:
        if self.response is None and self.stream is None:
            raise ValueError("give response, stream or both")
        if self.response is not None and self.stream is not None and self.stream.when is None:
            raise ValueError("has response and stream; say in stream.when which requests are streamed")
        if self.response is None and self.stream is not None and self.stream.when is not None:
            raise ValueError("has stream.when but no response for the other requests")
        if self.action == "search" and (self.stream is not None or self.upstream is not None):
            raise ValueError("a search is not streamed, and no upstream for answers")
        if self.batch is not None and (
            self.action == "search" or self.method == "GET" or self.stream is not None or self.upstream is not None
        ):
            raise ValueError("a batch is answered whole, with a body; it has no stream, no upstream and no search")
        if self.upstream is not None and (self.method == "GET" or "{" in self.path):
            raise ValueError("an upstream is called with a body, at a path without parameters")
        return self


class GrpcTable(Table):
    """[[grpc]] a method that the gateway itself calls (see [upstream] of the settings)."""

    method: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*/[A-Za-z_][A-Za-z0-9_]*$")
    descriptors: str = ""
    body: str
    metadata: dict[str, str] = {}
    answer: Paths = ()
    token: Paths = ()
    end: Paths = ()
    error: Paths = ()
    outcome: Paths = ()
    notices: Paths = ()
    user: str = "user"
    assistant: str = "assistant"

    @model_validator(mode="after")
    def _answers(self) -> GrpcTable:
        if not self.answer and not self.token:
            raise ValueError("give answer (the whole answer's path), token (a piece's) or both")
        return self


class ErrorTable(Table):
    """[[error]]"""

    when: tuple[HttpStatus, ...] = ()
    status: HttpStatus | None = None
    body: str
    headers: dict[str, str] = {}


class CompareTable(Table):
    """[compare] how replay compares what has no fixed structure."""

    free: tuple[str, ...] = ()
    enums: dict[str, tuple[str, ...]] = {}


class ContractFile(Table):
    """The whole file."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    description: str = ""
    route: tuple[RouteTable, ...] = ()
    grpc: tuple[GrpcTable, ...] = ()
    error: tuple[ErrorTable, ...] = ()
    compare: CompareTable = CompareTable.model_construct()

    @model_validator(mode="after")
    def _holds_something(self) -> ContractFile:
        if not self.route and not self.grpc:
            raise ValueError("give at least one [[route]] or [[grpc]]")
        return self
