"""Asks a gRPC server what its services look like (grpc.reflection.v1, or v1alpha of older servers)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection_pb2

from router.upstream.described import MAX_BYTES, MAX_FILES, NotDescribed

if TYPE_CHECKING:
    from collections.abc import Sequence

_VERSIONS: Final = ("v1", "v1alpha")
_Files = dict[str, descriptor_pb2.FileDescriptorProto]


async def files_of(
    channel: grpc.aio.Channel, service: str, metadata: Sequence[tuple[str, str]], seconds: float
) -> list[descriptor_pb2.FileDescriptorProto]:
    """The .proto files of a service and what they import, as the server tells.

    Raises NotDescribed where it does not know the service or tells nothing, and grpc.aio.AioRpcError.
    """
    for version in _VERSIONS:
        try:
            return await _asked(channel, version, service, metadata, seconds)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    raise NotDescribed("the server does not describe itself (reflection); name a file in `descriptors`")


async def _asked(
    channel: grpc.aio.Channel, version: str, service: str, metadata: Sequence[tuple[str, str]], seconds: float
) -> list[descriptor_pb2.FileDescriptorProto]:
    # Both versions are the same on the wire.
    method: grpc.aio.StreamStreamMultiCallable[reflection_pb2.ServerReflectionRequest, bytes] = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=None,
    )
    call = method(timeout=seconds, metadata=tuple(metadata))
    files: _Files = {}
    try:
        size = await _ask(call, reflection_pb2.ServerReflectionRequest(file_containing_symbol=service), files, 0)
        while missing := _missing(files):
            request = reflection_pb2.ServerReflectionRequest(file_by_filename=missing)
            size = await _ask(call, request, files, size)
            if missing not in files:
                raise NotDescribed(f"the server does not describe {missing}")
        await call.done_writing()
    finally:
        call.cancel()
    return list(files.values())


def _missing(files: _Files) -> str:
    """The first import that was not told yet; "" where all were. protobuf's own need not be told."""
    for file in files.values():
        for name in file.dependency:
            if name not in files and not name.startswith("google/protobuf/"):
                return name
    return ""


async def _ask(
    call: grpc.aio.StreamStreamCall[reflection_pb2.ServerReflectionRequest, bytes],
    request: reflection_pb2.ServerReflectionRequest,
    files: _Files,
    size: int,
) -> int:
    """Ask for files and keep what comes; the size of all so far."""
    await call.write(request)
    data = await call.read()
    if not isinstance(data, bytes):
        raise NotDescribed("the server ended its description early")
    try:
        response = reflection_pb2.ServerReflectionResponse.FromString(data)
        told = [
            descriptor_pb2.FileDescriptorProto.FromString(each)
            for each in response.file_descriptor_response.file_descriptor_proto
        ]
    except DecodeError:
        raise NotDescribed("the server's description of itself cannot be read") from None
    if not told:
        wanted = request.file_containing_symbol or request.file_by_filename
        raise NotDescribed(f"the server does not know {wanted}")
    files.update((file.name, file) for file in told)
    size += len(data)
    if len(files) > MAX_FILES or size > MAX_BYTES:
        raise NotDescribed(f"the server's description is longer than {MAX_FILES} files or {MAX_BYTES} bytes")
    return size
