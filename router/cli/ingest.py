"""`pointsman ingest`: files, folders, globs and standard input into a collection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

_SHOWN_REJECTIONS = 20
