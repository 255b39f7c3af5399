"""From chunk keys to passages: the statement that reads text, and the last check of who may see it.

Whatever a leg, a link or a tool found passes through here. A chunk that is quarantined or that the scope does not
allow at this moment is left out, whatever the statement that found it believed. Should this one forget its condition
as well, row-level security keeps other tenants' rows out of it (tenant_rows).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from standard.database.pool import tenant_rows
from standard.domain.passage import Passage, ScanFinding
from standard.domain.text import UntrustedText

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from standard.database.pool import Connection
    from standard.retrieval.visibility import Visibility


@dataclass(frozen=True, slots=True)
class Hydrated:
    """Passages by chunk key, without those that may not be seen; their embeddings where asked for.

    `forbidden` counts chunks left out because the scope does not allow their document: a sign that the search that
    found them ran without the condition it needed. `withheld` are those that the injection scan quarantined.
    """

    passages: dict[int, Passage]
    embeddings: dict[int, bytes]
    forbidden: int
    withheld: tuple[ScanFinding, ...] = ()


async def hydrate(
    conn: Connection,
    generation_id: int,
    visible: Visibility,
    keys: Sequence[int],
    *,
    embeddings: int = 0,
) -> Hydrated:
    """Read the passages of `keys`, and the embeddings of the first `embeddings` of them."""
    if not keys:
        return Hydrated({}, {}, 0)
    parameters = {**visible.parameters, "keys": list(keys), "embeddings": embeddings}
    statement = passages_sql(generation_id, visible.clause).encode()
    rows = await tenant_rows(conn, visible.tenant, statement, parameters, binary=True)
    passages: dict[int, Passage] = {}
    vectors: dict[int, bytes] = {}
    forbidden = 0
    withheld: list[ScanFinding] = []
    for row in rows:
        key, document_id, position, title, uri, text, heading, content_hash, verdict, scan, metadata = row[:11]
        allowed, vector = row[11:]
        passage_id = f"{document_id}#{position}"
        techniques, rules_version = _grounds(scan)
        if not allowed:
            forbidden += 1
        elif verdict == "quarantine":
            withheld.append(ScanFinding(passage_id, verdict, techniques, rules_version))
        else:
            passages[key] = Passage(
                passage_id=passage_id,
                document_id=document_id,
                title=UntrustedText(title),
                uri=uri,
                text=UntrustedText(text),
                position=position,
                content_hash=content_hash,
                section_heading=heading,
                metadata=metadata,
                verdict=verdict,
                techniques=techniques,
                rules_version=rules_version,
            )
            if vector is not None:
                vectors[key] = vector
    return Hydrated(passages, vectors, forbidden, tuple(withheld))


def _grounds(scan: Mapping[str, Any] | None) -> tuple[tuple[str, ...], str]:
    """Techniques and version of the rules of a stored verdict that is not pass."""
    if scan is None:
        return (), ""
    return tuple(scan.get("techniques", ())), str(scan.get("rules_version", ""))


def matrix(embeddings: Sequence[bytes], dimensions: int) -> NDArray[np.float32]:
    """Decode halfvec_send's bytes (two int16: dimensions and unused; big-endian float16 values) to (n, dimensions)."""
    if not embeddings:
        return np.zeros((0, dimensions), np.float32)
    packed = np.frombuffer(b"".join(embeddings), ">f2").reshape(len(embeddings), dimensions + 2)
    return packed[:, 2:].astype(np.float32)


@lru_cache(maxsize=512)
def passages_sql(generation_id: int, clause: str) -> str:
    """Return the statement that reads passages by the chunk keys `keys`, the first `embeddings` with their vector."""
    return f"""
select c.chunk_key, d.document_id, c.position, d.title, d.uri, c.text, c.section_heading, c.content_hash, c.verdict,
    case when c.verdict <> 'pass' then c.scan end, d.metadata, {clause} as allowed,
    case when wanted.place <= %(embeddings)s then halfvec_send(c.embedding) end
from unnest(%(keys)s::bigint[]) with ordinality wanted(chunk_key, place)
cross join lateral (
    select * from chunk c where c.generation_id = {generation_id} and c.chunk_key = wanted.chunk_key limit 1
) c
cross join lateral (select * from document d where d.document_key = c.document_key limit 1) d
-- the limits, of what is unique anyway, keep the planner from merging every document behind row security
"""  # noqa: S608 - an integer, and a clause made of constants and placeholders


def passage_keys(passage_ids: Sequence[str]) -> tuple[list[str], list[int]]:
    """Split `<document_id>#<position>` into parallel lists; ids of another form are left out, since none can exist."""
    documents: list[str] = []
    positions: list[int] = []
    for passage_id in passage_ids:
        document_id, _, position = passage_id.rpartition("#")
        if (
            document_id
            and "\x00" not in document_id
            and position.isascii()
            and position.isdigit()
            and len(position) < 10
        ):
            documents.append(document_id)
            positions.append(int(position))
    return documents, positions


def keys_sql(generation_id: int) -> str:
    """Return the statement from passage ids to chunk keys. Parameters: collection, documents, positions (parallel)."""
    return f"""
select c.chunk_key
from unnest(%(documents)s::text[], %(positions)s::int[]) wanted(document_id, position)
join document d on d.collection_id = %(collection)s and d.document_id = wanted.document_id
join chunk c on c.generation_id = {generation_id} and c.document_key = d.document_key and c.position = wanted.position
"""  # noqa: S608 - an integer
