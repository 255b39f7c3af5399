"""AdminService: policies, traces, erasure; for callers with the role admin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf import json_format, struct_pb2, timestamp_pb2
from pointsman.v1 import admin_pb2, admin_pb2_grpc, gateway_pb2

from router.decide import CanaryBy, Rollout
from router.grpc.convert import ROUTES
from router.grpc.errors import abort
from router.grpc.validate import fraction, identifier, to_route
from standard.domain.errors import InvalidInput, NotFound
from standard.domain.question import Route

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping

    from router.access.identity import Identity
    from router.decide import Policy
    from router.grpc.calls import Context
    from router.journal.store import Journal
    from router.routing.policy import PolicyStore, StoredPolicy


_Word = TypeVar("_Word")
_ROLLOUTS: Final = {
    Rollout.OFF: admin_pb2.ROLLOUT_MODE_OFF,
    Rollout.SHADOW: admin_pb2.ROLLOUT_MODE_SHADOW,
    Rollout.CANARY: admin_pb2.ROLLOUT_MODE_CANARY,
    Rollout.ENFORCE: admin_pb2.ROLLOUT_MODE_ENFORCE,
}
_CANARIES: Final = {
    CanaryBy.SESSION: admin_pb2.CANARY_BY_SESSION,
    CanaryBy.TENANT: admin_pb2.CANARY_BY_TENANT,
}


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """The operator's edge."""

    def __init__(self, policies: PolicyStore, journal: Journal, identify: Callable[[Context], Identity]) -> None:
        self._policies = policies
        self._journal = journal
        self._identify = identify

    def _admin(self, context: Context) -> Identity:
        identity = self._identify(context)
        identity.require("admin")
        return identity

    async def GetRoutingPolicy(  # noqa: N802 - the RPC's name
        self, request: admin_pb2.GetRoutingPolicyRequest, context: Context
    ) -> admin_pb2.GetRoutingPolicyResponse:
        """The policy in force."""
        try:
            identity = self._admin(context)
            tenant = identifier(request.tenant, "tenant")
            if tenant:  # what holds for all holds for this caller as well
                identity.require_over(tenant)
            await self._policies.refresh()
            stored = self._policies.stored(tenant)
            return admin_pb2.GetRoutingPolicyResponse(
                policy=policy_message(stored.policy), version=stored.version, update_time=_updated(stored)
            )
        except Exception as error:  # noqa: BLE001 - the edge: every error is mapped once
            await abort(context, error)

    async def UpdateRoutingPolicy(  # noqa: N802
        self, request: admin_pb2.UpdateRoutingPolicyRequest, context: Context
    ) -> admin_pb2.UpdateRoutingPolicyResponse:
        """Replace a policy."""
        try:
            identity = self._admin(context)
            tenant = identifier(request.tenant, "tenant")
            identity.require_over(tenant)
            if not request.HasField("policy"):
                raise InvalidInput("policy", "is missing")
            if request.expected_version < 0:
                raise InvalidInput("expected_version", "is negative")
            policy = changed_policy(self._policies.own(tenant), self._policies.default, request.policy)
            by = identity.name or identity.tenant
            stored = await self._policies.update(tenant, policy, request.expected_version, by=by)
            return admin_pb2.UpdateRoutingPolicyResponse(policy=policy_message(stored.policy), version=stored.version)
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def GetTrace(  # noqa: N802
        self, request: admin_pb2.GetTraceRequest, context: Context
    ) -> admin_pb2.GetTraceResponse:
        """Everything that is kept about a run."""
        try:
            identity = self._admin(context)
            request_id = identifier(request.request_id, "request_id", required=True)
            stored = await self._journal.load(identity.tenant, request_id)
            if stored is None:
                raise NotFound(f"no run {request_id!r}")
            response = admin_pb2.GetTraceResponse(
                request_id=request_id,
                state=stored.state,
                create_time=_timestamp(stored.created_at),
                trace_ids=stored.trace_ids,
            )
            for entry in stored.entries:
                body = struct_pb2.Struct()
                json_format.ParseDict({"text": entry.text, **entry.body}, body)
                response.entries.append(
                    gateway_pb2.TraceEntry(sequence=entry.sequence, at=entry.at.timestamp(), kind=entry.kind, body=body)
                )
            return response
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)

    async def EraseSubject(  # noqa: N802
        self, request: admin_pb2.EraseSubjectRequest, context: Context
    ) -> admin_pb2.EraseSubjectResponse:
        """Erase every copy of a subject's questions."""
        try:
            identity = self._admin(context)
            subject = identifier(request.subject, "subject", required=True)
            return admin_pb2.EraseSubjectResponse(runs=await self._journal.erase(identity.tenant, subject))
        except Exception as error:  # noqa: BLE001 - the edge
            await abort(context, error)


def policy_message(policy: Policy) -> admin_pb2.RoutingPolicy:
    """A policy on the wire."""
    return admin_pb2.RoutingPolicy(
        threshold=policy.threshold,
        safe_route=ROUTES[policy.safe_route],
        max_agentic_share=policy.max_agentic_share,
        sticky_sessions=policy.sticky_sessions,
        rollout=_ROLLOUTS[policy.rollout],
        canary_percent=policy.canary_percent,
        canary_by=_CANARIES[policy.canary_by],
        shadow_sample=policy.shadow_sample,
        kill_switch=policy.kill_switch,
    )


def changed_policy(current: Policy, default: Policy, message: admin_pb2.RoutingPolicy) -> Policy:
    """A whole new policy; an absent threshold is the default's, an absent cap is no cap.

    What is absent of the rollout stays as it was: whoever changes a threshold alone must not end a shadow.
    """
    percent = message.canary_percent if message.HasField("canary_percent") else current.canary_percent
    if not 0.0 <= percent <= 100.0:  # NaN fails too
        raise InvalidInput("policy.canary_percent", f"{percent} is not within 0 to 100")
    return replace(
        current,
        threshold=fraction(message.threshold, "policy.threshold")
        if message.HasField("threshold")
        else default.threshold,
        safe_route=to_route(message.safe_route, "policy.safe_route") or Route.STANDARD,
        max_agentic_share=fraction(message.max_agentic_share, "policy.max_agentic_share")
        if message.HasField("max_agentic_share")
        else None,
        sticky_sessions=message.sticky_sessions,
        rollout=_named(_ROLLOUTS, message.rollout, "policy.rollout", current.rollout),
        canary_percent=percent,
        canary_by=_named(_CANARIES, message.canary_by, "policy.canary_by", current.canary_by),
        shadow_sample=fraction(message.shadow_sample, "policy.shadow_sample")
        if message.HasField("shadow_sample")
        else current.shadow_sample,
        kill_switch=message.kill_switch if message.HasField("kill_switch") else current.kill_switch,
    )


def _named(known: Mapping[_Word, int], number: int, field: str, absent: _Word) -> _Word:
    """The word of an enum's number; `absent` for unspecified."""
    if number == 0:
        return absent
    for word, value in known.items():
        if value == number:
            return word
    raise InvalidInput(field, f"{number} is none of {', '.join(str(word) for word in known)}")


def _updated(stored: StoredPolicy) -> timestamp_pb2.Timestamp | None:
    return None if stored.updated_at is None else _timestamp(stored.updated_at)


def _timestamp(moment: dt.datetime) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp
