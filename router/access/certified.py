"""Who a client's certificate stands for: names in verified certificates, and the callers that the settings give them.

Only a connection whose certificate was verified against `tls.client_ca` has names; without that nobody is believed. A
certificate is named by its subject alternative names, or by its common name where it has none (RFC 9525 leaves the
common name alone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.access.identity import Identity
from router.settings import BadSettings
from standard.domain.errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from router.settings import Settings


PEER = "pointsman.peer"
"""Where the scope of an HTTP call holds the names of its client's verified certificate."""


def certified_callers(settings: Settings) -> dict[str, Identity]:
    """The callers by the names of their certificates. Raises BadSettings where none could be told or one is wrong."""
    given = settings.auth.certificates
    if not given:
        return {}
    problems = []
    if settings.auth.mode != "keys":
        problems.append('auth.certificates: needs auth.mode = "keys"; without, everybody may do everything')
    if not settings.tls.client_ca:
        problems.append("auth.certificates: needs tls.client_ca; without, no client's certificate is verified")
    callers = {}
    for name, each in given.items():
        if each.collections and each.role != "user":
            told = f"the role {each.role} sees every collection of its tenant; leave them away"
            problems.append(f"auth.certificates.{name}.collections: {told}")
        roles = {"operator", "admin"} if each.role == "operator" else {each.role}
        seen = frozenset(each.collections) or None
        callers[name] = Identity(each.tenant, frozenset(roles), frozenset(each.groups), seen, f"certificate {name}")
    if problems:
        raise BadSettings(problems)
    return callers


def caller_named(names: Iterable[str], callers: Mapping[str, Identity]) -> Identity | None:
    """Whom a certificate of these names stands for, None for nobody; Unauthenticated where it names two callers."""
    found = {callers[name] for name in names if name in callers}
    if len(found) > 1:
        raise Unauthenticated("the client's certificate names two callers; the settings must give them one")
    return found.pop() if found else None


def names_over_grpc(context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """The names in a gRPC call's auth context, which has them only of a verified certificate."""
    names = context.get("x509_subject_alternative_name") or context.get("x509_common_name") or ()
    return tuple(name.decode("utf-8", "replace") for name in names)


def names_over_http(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names in a peer's certificate as `ssl` tells it: empty for one that was not verified."""
    if not certificate:
        return ()
    alternative = tuple(str(value) for _, value in certificate.get("subjectAltName", ()))
    if alternative:
        return alternative
    subject = certificate.get("subject", ())
    return tuple(str(value) for part in subject for key, value in part if key == "commonName")
