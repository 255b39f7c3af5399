"""Public data for the tests marked `data`: the folder that POINTSMAN_TEST_DATA names (make test-data DATA=DIR)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder of public data; a test that asks for it fails with the way out where there is none."""
    folder = os.environ.get("POINTSMAN_TEST_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.fail(f"no public data at {folder!r}: run `make test-data DATA=DIR`", pytrace=False)
    return Path(folder)
