"""Documents of a collection: list, read, delete.

`groups` are the caller's access groups: a document limited to groups exists only for those who share one of them. None
stands for an administrator, who sees all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from standard.corpus.collections import get_collection
from standard.corpus.paging import check_page_size, read_token, write_token
from standard.corpus.write import remove_documents
from standard.database.pool import connection, tenant_rows, transaction
from standard.domain.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from standard.database.pool import Pool

MAX_DELETED_AT_ONCE = 1000

_VISIBLE = b" and (%(groups)s::text[] is null or cardinality(access_groups) = 0 or access_groups && %(groups)s::text[])"
_COLUMNS = b"document_id, title, uri, metadata, access_groups, content_hash, created_at, updated_at"


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it is kept. `text` is None in lists."""

    document_id: str
    title: str
    uri: str
    metadata: Mapping[str, object]
    groups: tuple[str, ...]
    content_hash: str
    created_at: datetime
    updated_at: datetime
    text: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Documents by id, and the token of the next page ("" = this was the last)."""

    documents: tuple[StoredDocument, ...]
    next_page_token: str


def _read(row: tuple[Any, ...]) -> StoredDocument:
    document_id, title, uri, metadata, groups, *rest = row
    return StoredDocument(document_id, title, uri, metadata, tuple(groups), *rest)


async def list_documents(
    pool: Pool,
    tenant: str,
    collection: str,
    *,
    groups: frozenset[str] | None = None,
    page_size: int = 0,
    page_token: str = "",
) -> DocumentPage:
    """Return a page of documents without their texts, by id. Raises NotFound, InvalidInput."""
    size = check_page_size(page_size)
    values = {
        "collection": (await get_collection(pool, tenant, collection)).collection_id,
        "after": read_token(page_token),
        "groups": None if groups is None else sorted(groups),
        "limit": size + 1,
    }
    async with connection(pool) as conn:
        rows = await tenant_rows(
            conn,
            tenant,
            b"select " + _COLUMNS + b" from document where collection_id = %(collection)s and document_id > %(after)s"
            + _VISIBLE + b" order by document_id limit %(limit)s",
            values,
        )  # fmt: skip
    found = [_read(row) for row in rows]
    token = write_token(found[size - 1].document_id) if len(found) > size else ""
    return DocumentPage(tuple(found[:size]), token)


async def get_document(
    pool: Pool, tenant: str, collection: str, document_id: str, *, groups: frozenset[str] | None = None
) -> StoredDocument:
    """Return a document with its text. Raises NotFound where it or its collection is not there for the caller."""
    values = {
        "collection": (await get_collection(pool, tenant, collection)).collection_id,
        "id": document_id,
        "groups": None if groups is None else sorted(groups),
    }
    async with connection(pool) as conn:
        rows = await tenant_rows(
            conn,
            tenant,
            b"select " + _COLUMNS + b", text from document"
            b" where collection_id = %(collection)s and document_id = %(id)s" + _VISIBLE,
            values,
        )  # fmt: skip
    if not rows:
        raise NotFound(f"there is no document {document_id!r} in the collection {collection!r}")
    return _read(rows[0])


async def delete_documents(
    pool: Pool, tenant: str, collection: str, document_ids: Sequence[str], *, groups: frozenset[str] | None = None
) -> int:
    """Delete documents with their chunks in one transaction and return how many there were; unknown ids are no error.

    Raises NotFound for an unknown collection, InvalidInput for more than 1,000 ids.
    """
    if len(document_ids) > MAX_DELETED_AT_ONCE:
        raise InvalidInput("document_ids", f"at most {MAX_DELETED_AT_ONCE} documents can be deleted at once")
    owner = await get_collection(pool, tenant, collection)
    async with transaction(pool) as conn:
        cursor = await conn.execute(
            b"select document_key from document where collection_id = %(collection)s and document_id = any(%(ids)s)"
            + _VISIBLE + b" order by document_id for update",
            {
                "collection": owner.collection_id,
                "ids": list(document_ids),
                "groups": None if groups is None else sorted(groups),
            },
        )  # fmt: skip
        keys = [row[0] for row in await cursor.fetchall()]
        await remove_documents(conn, owner.collection_id, keys)
    return len(keys)
