"""A RAG of somebody else's over gRPC: a real server whose messages a test writes, byte by byte where it wants to."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha import reflection
from grpc_tools import protoc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

PROTO = """
syntax = "proto3";
package acme.rag.v1;
import "google/protobuf/struct.proto";
import "acme/turn.proto";
service Rag {
  rpc Ask(AskRequest) returns (AskReply);
  rpc Tell(AskRequest) returns (stream Part);
  rpc Listen(stream AskRequest) returns (AskReply);
}
message AskRequest {
  string query = 1;
  int32 maxHits = 2;
  repeated acme.Turn turns = 3;
  string library = 4;
}
message AskReply {
  message Answer { string text = 1; int32 words = 2; }
  Answer answer = 1;
  repeated Answer others = 2;
  google.protobuf.Struct extra = 3;
  string trouble = 4;
}
message Part {
  oneof part {
    string piece = 1;
    AskReply whole = 2;
    string trouble = 3;
  }
}
"""
TURN = """
syntax = "proto3";
package acme;
message Turn { string who = 1; string said = 2; }
"""
SERVICE = "acme.rag.v1.Rag"
CONTRACT = """
name = "acme"
[[grpc]]
method = "acme.rag.v1.Rag/Tell"
{descriptors}
body = '''
{{"query": "{{question}}", "maxHits": "{{top_k}}",
  "turns": {{"$each": "history", "$item": {{"who": "{{turn.role}}", "said": "{{turn.text}}"}}}}}}
'''
metadata = {{ "x-session" = "{{session_id}}", "x-query" = "{{question}}" }}
token = "piece"
answer = "whole.answer.text"
end = "whole"
error = "trouble"
outcome = "whole.extra.how"
notices = ["whole.extra.warnings", "whole.extra.warning"]
user = "human"
assistant = "ai"

[[grpc]]
method = "acme.rag.v1.Rag/Ask"
{descriptors}
body = '{{"query": "{{question}}"}}'
answer = ["answer.text", "others[-1].text", "extra.said"]
error = "trouble"
"""


def described(folder: Path) -> Path:
    """A descriptor set of the service, as protoc writes it."""
    (folder / "acme").mkdir(parents=True, exist_ok=True)
    (folder / "acme" / "rag.proto").write_text(PROTO)
    (folder / "acme" / "turn.proto").write_text(TURN)
    out = folder / "acme.binpb"
    command = ["protoc", f"-I{folder}", f"--descriptor_set_out={out}", "--include_imports"]
    well_known = str(protoc.__file__).removesuffix("protoc.py").rstrip("/") + "/_proto"
    assert protoc.main([*command, f"-I{well_known}", "acme/rag.proto"]) == 0
    return out


def contract(folder: Path, *, by_reflection: bool = False) -> str:
    """The contract's file beside its descriptors."""
    path = folder / "acme.toml"
    described(folder)
    path.write_text(CONTRACT.format(descriptors="" if by_reflection else 'descriptors = "acme.binpb"'))
    return str(path)


@dataclass(frozen=True, slots=True)
class Tells:
    """What a call is answered with: messages (JSON, or bytes as they are), each after a pause, then an end.

    `then` is a status to end with, "hang" for never, "cut" for a connection that breaks.
    """

    messages: tuple[dict[str, Any] | bytes, ...] = ()
    pause: float = 0.0
    then: grpc.StatusCode | str = grpc.StatusCode.OK


def parts(*words: str) -> tuple[dict[str, Any], ...]:
    """The messages of Tell."""
    return (*({"piece": word} for word in words), {"whole": {"answer": {"text": "".join(words)}}})


@dataclass
class Foreign:
    """Serves what `script` says, one entry a call; the last one again and again. Reached over a relay that can cut."""

    script: Sequence[Tells]
    descriptors: Path
    reflects: bool = False
    credentials: grpc.ServerCredentials | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    metadata: list[dict[str, str | bytes]] = field(default_factory=list)
    gone: int = 0
    port: int = 0
    _behind: int = 0
    _relay: asyncio.Server | None = None
    _lines: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(self.descriptors.read_bytes()).file:
            self._pool.Add(file)
        self._server = grpc.aio.server()
        service = self._pool.FindServiceByName(SERVICE)
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_stream_rpc_method_handler(self._handler(service.methods_by_name[name]))
            for name in ("Ask", "Tell")
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        if self.reflects:
            reflection.enable_server_reflection([SERVICE], self._server, pool=self._pool)
        if self.credentials is None:
            self._behind = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self._behind = self._server.add_secure_port("127.0.0.1:0", self.credentials)
        await self._server.start()
        self._relay = await asyncio.start_server(self._relayed, "127.0.0.1", self.port)
        self.port = self._relay.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._relay is not None
        self._relay.close()
        await self._server.stop(0)
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection."""
        for line in self._lines:
            line.transport.abort()

    def _handler(self, method: Any) -> Any:  # noqa: ANN401 - protobuf's and grpc's types of any method
        request_type, reply_type = map(message_factory.GetMessageClass, (method.input_type, method.output_type))

        async def handle(data: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
            asked = json_format.MessageToDict(request_type.FromString(data), preserving_proto_field_name=True)
            self.asked.append(asked)
            self.metadata.append(dict(context.invocation_metadata() or ()))
            tells = self.script[min(len(self.asked), len(self.script)) - 1]
            try:
                for message in tells.messages:
                    await asyncio.sleep(tells.pause)
                    if isinstance(message, bytes):
                        yield message
                    else:
                        yield json_format.ParseDict(
                            message, reply_type(), descriptor_pool=self._pool
                        ).SerializeToString()
                await asyncio.sleep(tells.pause)
                if tells.then == "cut":
                    self.cut()
                if isinstance(tells.then, str):
                    await asyncio.Event().wait()
                elif tells.then is not grpc.StatusCode.OK:
                    await context.abort(tells.then, "secret words of the upstream")
            except asyncio.CancelledError:
                self.gone += 1
                raise

        return handle

    async def _relayed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._lines.add(writer)
        there_writer: asyncio.StreamWriter | None = None
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._behind)
            self._lines.add(there_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(_copied(reader, there_writer))
                group.create_task(_copied(there_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            await closed(*(line for line in (writer, there_writer) if line is not None))


async def closed(*writers: asyncio.StreamWriter) -> None:
    """Close connections and wait until they are."""
    for writer in writers:
        writer.close()
    for writer in writers:
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass
    finally:
        target.close()
