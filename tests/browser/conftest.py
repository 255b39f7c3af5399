"""A gateway with a small corpus behind HTTP, and a real browser."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, NoReturn

import pytest
import pytest_asyncio

from tests.browser.browser import find_browser, open_browser
from tests.integration.http.conftest import Served, serving, settings_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser


def _missing(what: str) -> NoReturn:
    """Skip, and be counted as such; under CI (the variable CI is set) fail."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for the tests of a module."""
    found = find_browser()
    if importlib.util.find_spec("playwright") is None:
        _missing("playwright is not installed here: make setup-dev")
    if found is None:
        _missing("there is no Chromium here: tests/browser/fetch.sh gets Debian's, or put one on the PATH")
    async with open_browser(found) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Without a language model."""
    async with serving(settings_for(module_database_url, tmp_path_factory.mktemp("served"))) as opened:
        yield opened
