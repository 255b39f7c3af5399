"""Client certificates as callers, over real TLS: gRPC and HTTP."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import grpc
import httpx2
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from pointsman.client import Pointsman
from pointsman.v1 import admin_pb2, corpus_pb2

from router.access.certified import caller_named, certified_callers, names_over_grpc, names_over_http
from router.access.identity import Identity
from router.process.serving import open_server_process
from router.settings import BadSettings, load_settings
from standard.domain.errors import Unauthenticated
from tests.integration.tenants.conftest import PUMP, WHERE, code_of, settings_for

if TYPE_CHECKING:
    from pathlib import Path

CALLERS = {
    "ingest.acme.example": {"tenant": "acme", "role": "admin"},
    "wiki.acme.example": {"tenant": "acme", "collections": ["wiki"]},
    "bolt.example": {"tenant": "bolt"},
}


async def test_a_certificate_names_its_caller_and_another_one_needs_a_key(database_url: str, tmp_path: Path) -> None:
    server_ca, clients = trustme.CA(), trustme.CA()
    issued = server_ca.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    clients.cert_pem.write_to_path(str(tmp_path / "clients.pem"))
    tls = {name: str(tmp_path / file) for name, file in
           (("certificate", "cert.pem"), ("key", "key.pem"), ("client_ca", "clients.pem"))}  # fmt: skip
    settings = settings_for(database_url, tmp_path / "data", auth={"certificates": CALLERS}, tls=tls)

    async with open_server_process(settings) as server:

        def client(*names: str) -> Pointsman:
            leaf = clients.issue_cert(*names)
            roots, chain = server_ca.cert_pem.bytes(), leaf.cert_chain_pems[0].bytes()
            credentials = grpc.ssl_channel_credentials(roots, leaf.private_key_pem.bytes(), chain)
            return Pointsman(server.target, credentials=credentials, timeout_seconds=20.0)

        async def query(*names: str, **headers: str) -> httpx2.Response:
            context = ssl.create_default_context()
            server_ca.configure_trust(context)
            clients.issue_cert(*names).configure_cert(context)
            body: dict[str, Any] = {"question": WHERE}
            async with httpx2.AsyncClient(base_url=str(server.http_url), verify=context, timeout=30.0) as http:
                return await http.post("/query", json=body, headers=headers)

        async with client("ingest.acme.example") as admin:
            assert (await admin.ingest([corpus_pb2.Document(id="pump", title="Pump", text=PUMP)])).added == 1
            assert "shed" in (await admin.answer(WHERE)).answer
            await admin.admin.GetRoutingPolicy(admin_pb2.GetRoutingPolicyRequest(), timeout=10)
        async with client("wiki.acme.example") as wiki:
            assert await code_of(wiki.answer(WHERE)) is grpc.StatusCode.NOT_FOUND
        async with client("stranger.example") as stranger:
            assert await code_of(stranger.answer(WHERE)) is grpc.StatusCode.UNAUTHENTICATED
        async with client("bolt.example", "ingest.acme.example") as both:
            assert await code_of(both.answer(WHERE)) is grpc.StatusCode.UNAUTHENTICATED

        assert "shed" in (await query("ingest.acme.example")).json()["answer"]
        assert (await query("wiki.acme.example")).status_code == 404
        assert (await query("stranger.example")).status_code == 401
        assert (await query("ingest.acme.example", authorization="Bearer wrong")).status_code == 401, "a key wins"


def test_certificates_that_nobody_would_verify_stop_the_start(tmp_path: Path) -> None:
    certificates = {"a": {"tenant": "t", "role": "admin", "collections": ["x"]}}
    with pytest.raises(BadSettings) as caught:
        certified_callers(load_settings(data_dir=tmp_path, auth={"certificates": certificates}))
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "auth.certificates",
        "auth.certificates",
        "auth.certificates.a.collections",
    ]


NAMES = st.lists(st.sampled_from(["a", "b", "c", "other"]), max_size=4)
KNOWN = {"a": Identity("one"), "b": Identity("two"), "c": Identity("two")}


@given(NAMES)
def test_a_certificate_stands_for_one_caller_nobody_or_is_refused(names: list[str]) -> None:
    tenants = {KNOWN[name].tenant for name in names if name in KNOWN}
    if len(tenants) > 1:
        with pytest.raises(Unauthenticated):
            caller_named(names, KNOWN)
    else:
        found = caller_named(names, KNOWN)
        assert (found.tenant if found else None) == (tenants.pop() if tenants else None)


def test_a_common_name_counts_only_without_alternative_names() -> None:
    subject = ((("organizationName", "o"),), (("commonName", "cn"),))
    assert names_over_http({"subject": subject}) == ("cn",)
    assert names_over_http({"subject": subject, "subjectAltName": (("DNS", "x"), ("URI", "y"))}) == ("x", "y")
    assert names_over_http(None) == names_over_http({}) == ()
    assert names_over_grpc({"x509_common_name": [b"cn"], "x509_subject_alternative_name": [b"x"]}) == ("x",)
    assert names_over_grpc({"x509_common_name": [b"cn"]}) == ("cn",)
    assert names_over_grpc({}) == ()
