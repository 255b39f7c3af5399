"""A gRPC method by its description: whatever bytes come are a message or an error of ours, and text or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from router.http.contract.load import load_contract
from router.upstream.described import NotDescribed, described_by_file, described_by_us, described_in, text_at
from router.upstream.failures import Malformed
from tests.integration.upstream.foreign import contract

if TYPE_CHECKING:
    from pathlib import Path

    from router.http.contract.compiled import GrpcMethod
    from router.upstream.described import Described


@pytest.fixture(scope="module")
def tell(tmp_path_factory: pytest.TempPathFactory) -> tuple[GrpcMethod, Described]:
    from pathlib import Path

    method = load_contract(Path(contract(tmp_path_factory.mktemp("acme")))).methods[0]
    assert method.descriptors is not None
    return method, described_by_file(method, method.descriptors)


@given(data=st.binary(max_size=400))
def test_any_bytes_are_a_message_or_malformed(tell: tuple[GrpcMethod, Described], data: bytes) -> None:
    method, described = tell
    told = ""
    try:
        assert isinstance(text_at(method.token, described.decode(data)), str)
    except Malformed as error:
        told = str(error)
    assert told in {"", "a message is no acme.rag.v1.Part"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@given(body=_JSON | st.fixed_dictionaries({"query": _JSON, "maxHits": _JSON, "turns": _JSON}))
def test_any_body_is_a_request_or_told_to_be_none(tell: tuple[GrpcMethod, Described], body: object) -> None:
    told = ""
    try:
        assert isinstance(tell[1].encode(body), bytes)
    except NotDescribed as error:
        told = str(error)
    assert not told or told.startswith("the body is no acme.rag.v1.AskRequest: ")


@given(data=st.binary(max_size=200))
def test_a_file_of_any_bytes_is_a_description_or_told_to_be_none(
    tell: tuple[GrpcMethod, Described], tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "any.binpb"
    path.write_bytes(data)
    with pytest.raises(NotDescribed):
        described_by_file(tell[0], path)


def test_files_that_import_each_other_or_nothing_known_are_refused(tell: tuple[GrpcMethod, Described]) -> None:
    one = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["b.proto"])
    other = descriptor_pb2.FileDescriptorProto(name="b.proto", dependency=["a.proto"])
    with pytest.raises(NotDescribed, match="imports itself"):
        described_in(tell[0], [one, other])
    with pytest.raises(NotDescribed, match=r"b\.proto is imported and not described"):
        described_in(tell[0], [one])


def test_our_own_methods_need_no_description(tell: tuple[GrpcMethod, Described]) -> None:
    from router.http.contract.load import load_contracts

    (ours,) = load_contracts(["pointsman"])
    described = described_by_us(ours.methods[0])
    assert described is not None
    assert described.streams
    assert described_by_us(tell[0]) is None
