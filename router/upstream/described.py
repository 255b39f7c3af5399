"""What a gRPC method takes and gives, by its description: a file, our own stubs, or what the server says of itself.

What goes wrong without it: a path that leads nowhere in the answer, or a field that the request does not have, would
be found out by the first question; with a file it stops the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, Message

from router.http.contract.paths import MISSING, Sources, Where, walk
from router.http.contract.template import Values, render
from router.upstream.failures import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path as FilePath

    from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool

    from router.http.contract.compiled import GrpcMethod
    from router.http.contract.paths import Path

MAX_FILES: Final = 512
MAX_BYTES: Final = 8_388_608
"""Most of a description that is read."""
_OWN: Final = "pointsman.v1."
_FREE: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Any", "FieldMask", "Duration", "Timestamp")
)
"""Messages whose JSON is not made of their fields."""
_TRIED: Final = Values(
    {"question": "?", "session_id": "s", "request_id": "r", "collection": "c", "top_k": 5},
    {"history": [{"turn.role": "user", "turn.text": "?"}]},
    Sources({}, {}, {}, {}),
)


class NotDescribed(Malformed):
    """The method is not there, or is not what the contract makes of it."""


@dataclass(frozen=True, slots=True)
class Described:
    """A method's messages; `streams` says whether it answers with several. A request is given and read as JSON."""

    pool: DescriptorPool
    request: type[Message]
    response: type[Message]
    streams: bool

    def encode(self, body: object) -> bytes:
        """The request's bytes. Raises NotDescribed for what the message cannot hold."""
        try:
            message = json_format.ParseDict(body, self.request(), descriptor_pool=self.pool)  # type: ignore[arg-type]
        except (
            json_format.ParseError,
            TypeError,
            AttributeError,
        ) as error:
            raise NotDescribed(f"the body is no {self.request.DESCRIPTOR.full_name}: {error}") from None
        return message.SerializeToString()

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - JSON
        """A response as JSON, fields named as in the .proto file. Raises Malformed."""
        try:
            message = self.response.FromString(data)
            return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self.pool)
        except (DecodeError, json_format.Error, ValueError, TypeError, RecursionError):
            raise Malformed(f"a message is no {self.response.DESCRIPTOR.full_name}") from None


def described_by_file(method: GrpcMethod, path: FilePath) -> Described:
    """The method as a file with a serialized FileDescriptorSet describes it. Raises NotDescribed, and OSError."""
    if path.stat().st_size > MAX_BYTES:
        raise NotDescribed(f"{path} is larger than {MAX_BYTES} bytes")
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    except DecodeError:
        raise NotDescribed(f"{path} is no FileDescriptorSet; protoc --descriptor_set_out writes one") from None
    if not found.file:
        raise NotDescribed(f"{path} describes nothing; protoc --descriptor_set_out writes such a file")
    return described_in(method, found.file)


def described_in(method: GrpcMethod, files: Iterable[descriptor_pb2.FileDescriptorProto]) -> Described:
    """The method as .proto files describe it, in any order. Raises NotDescribed."""
    by_name = {each.name: each for each in files}
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in added:
            return
        if name in above:
            raise NotDescribed(f"{name} imports itself")
        file = by_name.get(name)
        if file is None:
            file = _well_known(name)
        for dependency in file.dependency:
            add(dependency, (*above, name))
        pool.Add(file)
        added.add(name)

    try:
        for name in by_name:
            add(name, ())
    except (TypeError, RecursionError) as error:  # the pool's error for a file that contradicts itself
        raise NotDescribed(f"the description cannot be used: {error}") from None
    return _found(method, pool)


def described_by_us(method: GrpcMethod) -> Described | None:
    """The method where it is one of pointsman's own API, else None. Raises NotDescribed."""
    if not method.service.startswith(_OWN):
        return None
    from pointsman.v1 import gateway_pb2  # noqa: F401 - puts the API into the pool

    return _found(method, descriptor_pool.Default())


def _well_known(name: str) -> descriptor_pb2.FileDescriptorProto:
    """A file of protobuf's own, which descriptor sets without imports leave out. Raises NotDescribed."""
    file = descriptor_pb2.FileDescriptorProto()
    try:
        if not name.startswith("google/protobuf/"):
            raise KeyError(name)
        descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    except KeyError:
        raise NotDescribed(f"{name} is imported and not described; use protoc --include_imports") from None
    return file


def _found(method: GrpcMethod, pool: DescriptorPool) -> Described:
    try:
        service = pool.FindServiceByName(method.service)
    except KeyError:
        raise NotDescribed(f"there is no service {method.service}") from None
    each: MethodDescriptor | None = service.methods_by_name.get(method.method)
    if each is None:
        known = ", ".join(sorted(service.methods_by_name)) or "none"
        raise NotDescribed(f"{method.service} has no method {method.method}; it has {known}")
    if each.client_streaming:
        raise NotDescribed(f"{method.method} takes a stream of requests; one that takes a single request can be called")
    request, response = map(message_factory.GetMessageClass, (each.input_type, each.output_type))
    found = Described(pool, request, response, bool(each.server_streaming))
    for key in ("answer", "token", "end", "error", "outcome", "notices"):
        for path in getattr(method, key):
            problem = _problem(path, each.output_type, text=key in {"answer", "token"})
            if problem:
                raise NotDescribed(f"{key}: path {path.text!r}: {problem}")
    found.encode(render(method.template, _TRIED))
    return found


def _problem(path: Path, response: Descriptor, *, text: bool) -> str:
    """Why a path cannot lead to something (to text, where that is meant) in a message; "" where it can."""
    message: Descriptor | None = response
    field: FieldDescriptor | None = None
    within = False  # an item of the repeated field was chosen
    for step in path.steps:
        if field is not None and _free(field):
            return ""
        if field is not None and field.is_repeated and not within:
            if isinstance(step, str):
                return f"{field.name} is a list; choose one with [0] or [-1]"
            within = not isinstance(step, Where)
            continue
        if not isinstance(step, str):
            return f"{response.full_name if field is None else field.name} is no list"
        if message is None:
            return "" if field is None else f"{field.name} holds no fields"
        field, within = message.fields_by_name.get(step), False
        if field is None:
            return f"{message.full_name} has no field {step}; it has {', '.join(message.fields_by_name) or 'none'}"
        message = field.message_type
    if not text or field is None or _free(field):
        return ""
    if field.is_repeated and not within:
        return f"{field.name} is a list; choose one with [0] or [-1]"
    return "" if field.type == field.TYPE_STRING else f"{field.name} is no text"


def _free(field: FieldDescriptor) -> bool:
    """Whether a field's JSON is not made of its message's fields: a map, or one of protobuf's own messages."""
    message = field.message_type
    return message is not None and (message.full_name in _FREE or message.GetOptions().map_entry)


def text_at(paths: Iterable[Path], value: object) -> str:
    """The text at the first path that leads to some; "" where none does. Raises Malformed for what is no text."""
    for path in paths:
        found = walk(path.steps, value)
        if found is MISSING or found is None or found == "":
            continue
        if not isinstance(found, str):
            raise Malformed(f"at {path.text} stands no text")
        return found
    return ""


def stands_at(paths: Iterable[Path], value: object) -> bool:
    """Whether at one of the paths something stands: a message, even an empty one; no "", 0 or false."""
    for path in paths:
        found = walk(path.steps, value)
        if isinstance(found, dict) or (found is not MISSING and bool(found)):
            return True
    return False
