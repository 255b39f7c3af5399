"""Which documents a search may see, as SQL.

Prevents the leak of a tool or a leg that forgets the caller's scope: every statement of this package takes its
condition from here, and what is handed out was checked against it in the statement that read the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from standard.retrieval.filters import filter_sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from standard.domain.passage import Scope

_GROUPS = "(d.access_groups = '{}' or d.access_groups && %(groups)s::text[])"


@dataclass(frozen=True, slots=True)
class Visibility:
    """A condition over the alias `d` (document): of the collection, within the filter, open to one of the groups.

    `filtered` tells whether it holds a metadata filter. `tenant` is the caller's, for row-level security behind the
    condition.
    """

    clause: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    filtered: bool = False
    tenant: str = ""

    def among(self, document_keys: Sequence[int]) -> Visibility:
        """Return the same condition with the documents named that meet it, so that the planner need not find them."""
        parameters = {**self.parameters, "among": list(document_keys)}
        return replace(
            self, clause=f"d.document_key = any(%(among)s::bigint[]) and {self.clause}", parameters=parameters
        )


def visibility(scope: Scope, collection_id: int) -> Visibility:
    """Return the condition of a scope; raises InvalidInput where its filter is malformed."""
    parameters: dict[str, object] = {"groups": sorted(scope.groups)}
    parts = [f"d.collection_id = {int(collection_id)}", _GROUPS]
    if scope.filter is not None:
        condition = filter_sql(scope.filter)
        parts.append(f"({condition.clause})")
        parameters |= condition.parameters
    return Visibility(" and ".join(parts), parameters, filtered=scope.filter is not None, tenant=scope.tenant)
