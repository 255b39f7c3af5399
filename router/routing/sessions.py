"""What this process remembers between questions: a session's last route, and each tenant's recent agentic share."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from router.routing.share import AgenticShare

if TYPE_CHECKING:
    from standard.domain.question import Route

_SESSIONS_KEPT = 10_000


class Sessions:
    """Bounded: the least recently used sessions are forgotten first."""

    def __init__(self) -> None:
        self._routes: OrderedDict[tuple[str, str], Route] = OrderedDict()
        self._share = AgenticShare()

    def route(self, tenant: str, session_id: str) -> Route | None:
        """The final route of the session's last answer, if it is remembered."""
        return self._routes.get((tenant, session_id)) if session_id else None

    def share(self, tenant: str) -> float:
        """The tenant's recent share of agentic answers, 0 to 1."""
        return self._share.of(tenant)

    def remember(self, tenant: str, session_id: str, route: Route) -> None:
        """Note the final route of an answer."""
        self._share.add(tenant, agentic=route.value == "agentic")
        if not session_id:
            return
        key = (tenant, session_id)
        self._routes[key] = route
        self._routes.move_to_end(key)
        if len(self._routes) > _SESSIONS_KEPT:
            self._routes.popitem(last=False)
