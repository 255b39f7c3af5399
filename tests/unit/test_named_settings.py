"""A setting that a message, a comment or a page names exists: nobody is sent to a key that is refused."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from router.settings import Settings

ROOT = Path(__file__).parents[2]
PLACES = ("router", "agentic", "standard", "classifier", "protos", "docs", "deploy", "README.md")
KINDS = {".py", ".md", ".toml", ".yml", ".yaml", ".sql", ".proto", ".sh", ".json", ".js", ".html", ".txt", ""}
NAMED = re.compile(r"POINTSMAN_[A-Z0-9_]*__[A-Z0-9_]*[A-Z0-9]")


def files() -> list[Path]:
    """Files of the product, without what is generated or large."""
    found = [
        path for place in PLACES for path in ([ROOT / place] if place.endswith(".md") else (ROOT / place).rglob("*"))
    ]
    return [path for path in found if path.is_file() and path.suffix in KINDS and path.stat().st_size < 1_000_000]


def exists(name: str) -> bool:
    """Does an environment variable of this name reach a setting?"""
    kind: Any = Settings
    for part in name.removeprefix("POINTSMAN_").lower().split("__"):
        kind = _inner(kind, part)
        if kind is None:
            return False
    return True


def _inner(kind: Any, part: str) -> Any:  # noqa: ANN401 - types
    if get_origin(kind) is types.UnionType:
        return next((found for one in get_args(kind) if (found := _inner(one, part)) is not None), None)
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(part)
        return None if field is None else field.annotation
    return None


def test_every_setting_that_is_named_anywhere_exists() -> None:
    named: dict[str, set[str]] = {}
    for path in files():
        for name in NAMED.findall(path.read_text(encoding="utf-8", errors="replace")):
            named.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    assert len(named) > 15, "the search itself works"
    assert not {name: places for name, places in named.items() if not exists(name)}


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("POINTSMAN_DATABASE__ACCEPT_OLD_PGVECTOR", True),
        ("POINTSMAN_TABLES__HANDBOOK__EMBEDDER__API_KEY", True),
        ("POINTSMAN_LIMITS__TENANTS__ACME__CONCURRENT", True),
        ("POINTSMAN_DATABASE__ALLOW_OLD_PGVECTOR", False),
        ("POINTSMAN_DATABASES__URL", False),
        ("POINTSMAN_DATABASE__URL__HOST", False),
    ],
)
def test_a_name_is_known_from_one_that_is_not(name: str, *, there: bool) -> None:
    assert exists(name) is there
