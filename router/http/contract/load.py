"""Contract files read, checked whole and compiled; what is wrong is named by file, key and problem before serving."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from router.http.contract import schema
from router.http.contract.compiled import (
    Asks,
    Batch,
    Body,
    Contract,
    ContractRoute,
    ErrorRule,
    Frame,
    GrpcMethod,
    History,
    Stream,
    Upstream,
)
from router.http.contract.paths import Path, parse_path
from router.http.contract.template import Alone, Items, Template, compile_json, compile_text, names_used
from router.settings import BadSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MAX_BYTES: Final = 1_048_576
COMMON: Final = frozenset({"request_id", "session_id", "question", "created", "created_ms", "created_iso"})
FINAL: Final = COMMON | {
    "answer",
    "clarification",
    "route",
    "outcome",
    "stop_reason",
    "answer_source",
    "steps",
    "notices",
    "usage.input_tokens",
    "usage.output_tokens",
    "usage.total_tokens",
    "usage.cached_tokens",
    "usage.cost_usd",
    "timings.total_seconds",
    "timings.first_token_seconds",
    "timings.retrieve_seconds",
}
ERROR: Final = frozenset(
    {
        "request_id",
        "created",
        "created_ms",
        "created_iso",
        "error.status",
        "error.reason",
        "error.message",
        "error.field",
    }
)
PASSAGE: Final = frozenset(
    f"passage.{name}"
    for name in ("number", "id", "document_id", "title", "uri", "text", "score", "section", "position", "metadata")
)
CITATION: Final = frozenset(
    f"citation.{name}"
    for name in ("number", "passage_id", "document_id", "title", "uri", "quote", "start", "end", "score")
)
_MOMENT: Final = frozenset({"request_id", "created", "created_ms", "created_iso"})
_ITEMS: Final[Items] = {"passages": PASSAGE, "citations": CITATION}
UPSTREAM: Final = frozenset({"question", "session_id", "request_id", "collection", "top_k"})
TURN: Final = frozenset({"turn.role", "turn.text"})
_FRAME_NAMES: Final[dict[schema.EventKind, frozenset[str]]] = {
    "start": COMMON,
    "step": COMMON | {"step"},
    "token": COMMON | {"token"},
    "citation": COMMON | CITATION,
    "end": FINAL,
    "error": ERROR,
}
_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?::path)?\}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_METADATA_KEY = re.compile(r"[a-z0-9_.-]{1,64}")
_OWN_HEADERS: Final = frozenset({"content-length", "transfer-encoding", "connection", "content-type"})
_DEFAULT_ERROR: Final = (
    '{"error": {"reason": "{error.reason}", "message": "{error.message}", "field": "{error.field}"}}'
)


def load_contracts(named: Iterable[str]) -> list[Contract]:
    """Load files, folders of them, and shipped contracts by name. Raises BadSettings with every problem found."""
    contracts: list[Contract] = []
    problems: list[str] = []
    for name in named:
        try:
            contracts += [load_contract(file) for file in _files(name)]
        except BadSettings as error:
            problems += error.problems
    if problems:
        raise BadSettings(problems)
    return contracts


def _files(name: str) -> list[FilePath]:
    path = FilePath(name)
    if path.is_dir():
        found = sorted(path.glob("*.toml"))
        if not found:
            raise BadSettings([f"http.contracts: the folder {path} holds no .toml file"])
        return found
    if path.is_file():
        return [path]
    shipped = shipped_folder() / f"{name}.toml"
    if re.fullmatch(r"[A-Za-z0-9_-]+", name) and shipped.is_file():
        return [shipped]
    known = ", ".join(sorted(each.stem for each in shipped_folder().glob("*.toml")))
    raise BadSettings([f"http.contracts: no file, folder or shipped contract {name!r}; shipped are {known or 'none'}"])


def shipped_folder() -> FilePath:
    """Where the shipped contracts lie: in the wheel beside this package, or in the checkout."""
    installed = FilePath(__file__).parents[1] / "contracts"
    return installed if installed.is_dir() else FilePath(__file__).parents[3] / "deploy" / "contracts"


def load_contract(path: FilePath) -> Contract:
    """Load one file. Raises BadSettings with lines `FILE: KEY: problem`."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadSettings([f"{path}: is larger than {MAX_BYTES} bytes"])
        parsed = schema.ContractFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise BadSettings([f"{path}: {_key(item['loc'])}: {item['msg']}" for item in error.errors()]) from None
    except (OSError, ValueError, RecursionError) as error:  # tomllib's and Unicode's errors are ValueErrors
        raise BadSettings([f"{path}: {error}"]) from None
    compiler = _Compiler(str(path))
    routes = tuple(compiler.route(route, f"route[{index}]") for index, route in enumerate(parsed.route))
    methods = tuple(compiler.method(method, f"grpc[{index}]", path) for index, method in enumerate(parsed.grpc))
    errors = [compiler.error(each, f"error[{index}]") for index, each in enumerate(parsed.error)]
    compiler.comparable(parsed.compare)
    if compiler.problems:
        raise BadSettings(compiler.problems)
    default = ErrorRule(frozenset(), None, compile_json(_DEFAULT_ERROR, ERROR, {}), {})
    return Contract(parsed.name, str(path), routes, methods, (*errors, default), parsed.compare)


def _key(location: Sequence[int | str]) -> str:
    key = ""
    for part in location:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
    return key or "the file"


class _Compiler:
    """Compiles the parts of a file and collects what is wrong with them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[str] = []

    def _attempt(self, key: str, compile_it: Callable[[], Template]) -> Template:
        try:
            return compile_it()
        except ValueError as error:
            self.problems.append(f"{self.file}: {key}: {error}")
        except RecursionError:
            self.problems.append(f"{self.file}: {key}: is nested too deep")
        return None

    def _path(self, text: str, key: str) -> Path:
        try:
            return parse_path(text)
        except ValueError as error:
            self.problems.append(f"{self.file}: {key}: {error}")
            return Path(text, "", ())

    def _paths(self, texts: Sequence[str], key: str) -> tuple[Path, ...]:
        return tuple(self._path(text, key) for text in texts)

    def route(self, table: schema.RouteTable, key: str) -> ContractRoute:
        asks = self._asks(table.request, f"{key}.request")
        parameters = set(_PARAMETER.findall(table.path))
        if "{" in _PARAMETER.sub("", table.path):
            self.problems.append(f"{self.file}: {key}.path: parameters are written {{name}} or {{name:path}}")
        for path in (*asks.question, *(path for paths in asks.parts.values() for path in paths)):
            if path.root == "@path" and path.steps[0] not in parameters:
                self.problems.append(f"{self.file}: {key}.request: {path.text} is no parameter of {table.path}")
            if not path.root and table.method == "GET":
                self.problems.append(f"{self.file}: {key}.request: {path.text}: a GET has no body; use @query")
        known = COMMON if table.action == "search" else FINAL
        lists: Items = {"passages": PASSAGE} if table.action == "search" else _ITEMS
        batch = None
        if table.batch is not None:
            batch = Batch(self._path(table.batch.path, f"{key}.batch.path"), table.batch.name, table.batch.split)
            known, lists = _MOMENT, {"answers": Alone(FINAL, _ITEMS)}
        unary = None if table.response is None else self._body(table.response, known, lists, f"{key}.response")
        stream = None if table.stream is None else self._stream(table.stream, f"{key}.stream")
        used: set[str] = set() if unary is None else names_used(unary.template)
        for frames in () if stream is None else stream.frames.values():
            for frame in frames:
                used |= set() if frame.template is None else names_used(frame.template)
        searching = table.action == "search"
        wants_passages = searching or "passages" in used
        upstream = None if table.upstream is None else self._upstream(table.upstream, f"{key}.upstream")
        return ContractRoute(
            table.method, table.path, searching, asks, table.fixed, unary, stream, wants_passages, upstream, batch
        )

    def _upstream(self, table: schema.UpstreamTable, key: str) -> Upstream:
        lists: Items = {"history": TURN}
        template = self._attempt(f"{key}.body", lambda: compile_json(table.body, UPSTREAM, lists))
        return Upstream(template, self._headers(table.headers, UPSTREAM, key))

    def method(self, table: schema.GrpcTable, key: str, file: FilePath) -> GrpcMethod:
        service, _, name = table.method.partition("/")
        template = self._attempt(f"{key}.body", lambda: compile_json(table.body, UPSTREAM, {"history": TURN}))
        for header in table.metadata:
            if not _METADATA_KEY.fullmatch(header) or header.startswith("grpc-") or header.endswith("-bin"):
                problem = "is no metadata that can be set here; keys are in lower case, none of grpc-* and *-bin"
                self.problems.append(f"{self.file}: {key}.metadata: {header!r} {problem}")
        named = ("answer", "token", "end", "error", "outcome", "notices")
        paths = {part: self._paths(getattr(table, part), f"{key}.{part}") for part in named}
        for part, each in paths.items():
            if any(path.root for path in each):
                self.problems.append(f"{self.file}: {key}.{part}: paths lead into the response; @ names no part of it")
        return GrpcMethod(
            service,
            name,
            file.parent / table.descriptors if table.descriptors else None,
            template,
            self._headers(table.metadata, UPSTREAM, f"{key}.metadata"),
            **paths,
            user_word=table.user,
            assistant_word=table.assistant,
        )

    def _asks(self, table: schema.RequestTable, key: str) -> Asks:
        if not table.question:
            self.problems.append(f"{self.file}: {key}.question: is empty; name a path")
        history = None
        if table.history is not None:
            given = table.history
            history = History(
                self._paths(given.path, f"{key}.history.path"),
                self._path(given.role, f"{key}.history.role"),
                self._path(given.text, f"{key}.history.text"),
                frozenset(given.user),
                frozenset(given.assistant),
                given.pairs,
                given.drop_last,
                next(iter(given.user), "user"),
                next(iter(given.assistant), "assistant"),
            )
        names = ("collection", "session", "request_id", "top_k", "filter", "route", "threshold")
        parts = {name: self._paths(getattr(table, name), f"{key}.{name}") for name in names}
        return Asks(self._paths(table.question, f"{key}.question"), history, parts)

    def _body(self, table: schema.ResponseTable, known: frozenset[str], lists: Items, key: str) -> Body:
        if table.body:
            template = self._attempt(f"{key}.body", lambda: compile_json(table.body, known, lists))
        else:
            template = self._attempt(f"{key}.text", lambda: compile_text(table.text, known))
        media = table.content_type or ("application/json" if table.body else "text/plain; charset=utf-8")
        return Body(template, bool(table.body), media, table.status, self._headers(table.headers, known, key))

    def _stream(self, table: schema.StreamTable, key: str) -> Stream:
        frames: dict[str, list[Frame]] = {}
        for index, frame in enumerate(table.frame):
            frames.setdefault(frame.on, []).append(self._frame(frame, table.framing, f"{key}.frame[{index}]"))
        media = {"sse": "text/event-stream", "ndjson": "application/x-ndjson", "raw": "text/plain; charset=utf-8"}
        when = None if table.when is None else (self._path(table.when.path, f"{key}.when.path"), table.when.equals)
        return Stream(
            table.framing,
            "\r\n" if table.newline == "crlf" else "\n",
            table.heartbeat,
            table.content_type or media[table.framing],
            table.status,
            self._headers(table.headers, COMMON, key),
            when,
            {on: tuple(each) for on, each in frames.items()},
        )

    def _frame(self, table: schema.FrameTable, framing: str, key: str) -> Frame:
        known = _FRAME_NAMES[table.on]
        lists: Items = _ITEMS if table.on == "end" else {"passages": PASSAGE} if table.on == "start" else {}
        if table.event and framing != "sse":
            self.problems.append(f"{self.file}: {key}.event: only framing sse has event names")
        if framing == "ndjson" and table.data is None:
            self.problems.append(f"{self.file}: {key}: framing ndjson takes data")
        data, text = table.data, table.text
        if data is not None:
            return Frame(table.event, self._attempt(f"{key}.data", lambda: compile_json(data, known, lists)), True)
        if text is not None:
            return Frame(table.event, self._attempt(f"{key}.text", lambda: compile_text(text, known)), False)
        return Frame(table.event, None, False)

    def error(self, table: schema.ErrorTable, key: str) -> ErrorRule:
        template = self._attempt(f"{key}.body", lambda: compile_json(table.body, ERROR, {}))
        return ErrorRule(frozenset(table.when), table.status, template, self._headers(table.headers, ERROR, key))

    def comparable(self, table: schema.CompareTable) -> None:
        for path in (*table.free, *table.enums):
            if not path:
                self.problems.append(f"{self.file}: compare: a path is empty")

    def _headers(self, given: Mapping[str, str], known: frozenset[str], key: str) -> dict[str, Template]:
        headers: dict[str, Template] = {}
        for name, value in given.items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
                self.problems.append(f"{self.file}: {key}.headers: {name!r} is no header that can be set here")
                continue
            headers[name.lower()] = self._attempt(
                f"{key}.headers.{name}",
                lambda value=value: compile_text(value, known),  # type: ignore[misc]
            )
        return headers
