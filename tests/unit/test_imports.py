"""The house's import directions, read from the code itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "router": {"router", "agentic", "standard", "classifier", "pointsman"},
    "agentic": {"agentic", "standard"},
    "standard": {"standard"},
    "classifier": {"classifier"},
}
OURS = {"router", "agentic", "standard", "classifier", "pointsman", "tests", "deploy"}


def imported(path: Path) -> set[tuple[str, str]]:
    """(top-level package, full module) of every import of a file, also the deferred ones."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
        found |= {(name.split(".")[0], name) for name in names}
    return found


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_run_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        for top, name in imported(path):
            assert top not in OURS or top in ALLOWED[package], f"{path.relative_to(ROOT)} imports {name}"


def test_the_domain_imports_nothing_of_ours_but_itself() -> None:
    for path in sorted((ROOT / "standard" / "domain").glob("*.py")):
        for top, name in imported(path):
            assert top not in OURS or name.startswith("standard.domain"), f"{path.name} imports {name}"


def test_the_client_needs_grpc_and_protobuf_alone() -> None:
    for top, name in imported(ROOT / "protos" / "pointsman" / "client.py"):
        assert top in {"grpc", "google", "pointsman", "json", "uuid", "typing", "collections", "types", "__future__"}, (
            name
        )


@pytest.mark.parametrize("heavy", ["torch", "sentence_transformers", "sklearn"])
def test_heavy_packages_are_imported_only_where_they_are_used(heavy: str) -> None:
    authors_tools = ROOT / "classifier" / "data"
    for package in ALLOWED:
        for path in sorted((ROOT / package).rglob("*.py")):
            if authors_tools in path.parents:
                continue
            top_level = {
                name.split(".")[0]
                for node in ast.parse(path.read_text()).body
                for name in (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else []
                )
            }
            assert heavy not in top_level, f"{path.relative_to(ROOT)} imports {heavy} at the top"
