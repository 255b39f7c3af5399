"""Which tenants have a label of their own in metrics: the busiest, in bounded memory, however many there are.

Prevents a registry that grows with every tenant, and one in which the first fifty tenants of the day hide the one that
floods the gateway in the afternoon. Requests are counted by SpaceSaving (Metwally, Agrawal and El Abbadi, "Efficient
computation of frequent and top-k elements in data streams", 2005): `watched` counters; a tenant without one takes the
smallest and inherits its count, which is remembered as its possible error. Counts are halved every `ageing` requests,
so that "busiest" means of late. A tenant takes the label of the least busy one only when what it surely asked exceeds
that one's count by half, so labels do not change hands back and forth.

Who loses its label goes on under `other`, and its own series ends; what was counted under it is not moved, since a jump
of `other` would look like traffic. Who gets it back starts at 0, which Prometheus takes for a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OTHER = "other"
LABELS, WATCHED, AGEING = 50, 500, 10_000
_EXCESS = 1.5


@dataclass(slots=True)
class _Count:
    """Requests of late, at most `error` of which may have been somebody else's."""

    requests: float
    error: float = 0.0


@dataclass(slots=True)
class BusiestTenants:
    """At most `labels` names at a time. A request costs some dictionary look-ups; one of an unknown tenant a pass."""

    labels: int = LABELS
    watched: int = WATCHED
    ageing: int = AGEING
    _counts: dict[str, _Count] = field(default_factory=dict)
    _labelled: set[str] = field(default_factory=set)
    _least: str = ""
    _until_ageing: int = field(default=-1)

    def label_of(self, tenant: str) -> tuple[str, str]:
        """Count a request; return the tenant's label, and the tenant that lost its own to it ("" for none)."""
        if tenant == OTHER:  # a tenant of that name shares the label, it can't take it away
            return OTHER, ""
        self._age()
        self._count(tenant)
        if tenant in self._labelled:
            return tenant, ""
        if len(self._labelled) < self.labels:
            self._labelled.add(tenant)
            return tenant, ""
        count = self._counts[tenant]
        sure = count.requests - count.error
        if sure <= _EXCESS * self._requests(self._least):  # grown since it was looked up, or nowhere near
            return OTHER, ""
        self._least = min(self._labelled, key=self._requests)
        if sure <= _EXCESS * self._requests(self._least):
            return OTHER, ""
        lost = self._least
        self._labelled.discard(lost)
        self._labelled.add(tenant)
        self._least = min(self._labelled, key=self._requests)
        return tenant, lost

    def _requests(self, tenant: str) -> float:
        count = self._counts.get(tenant)
        return 0.0 if count is None else count.requests

    def _count(self, tenant: str) -> None:
        count = self._counts.get(tenant)
        if count is not None:
            count.requests += 1.0
        elif len(self._counts) < self.watched:
            self._counts[tenant] = _Count(1.0)
        else:
            smallest = min(self._counts, key=self._requests)
            floor = self._counts.pop(smallest).requests
            self._counts[tenant] = _Count(floor + 1.0, floor)

    def _age(self) -> None:
        if self._until_ageing < 0:
            self._until_ageing = self.ageing
        if self._until_ageing == 0:
            self._until_ageing = self.ageing
            for count in self._counts.values():
                count.requests /= 2.0
                count.error /= 2.0
        self._until_ageing -= 1
