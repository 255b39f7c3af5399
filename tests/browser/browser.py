"""Which browser there is, and one that runs it; the tests skip, and say why, where there is none."""

from __future__ import annotations

import os
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".pointsman" / "tools" / "chromium"
ARTIFACTS = Path(os.environ.get("POINTSMAN_ARTIFACTS", ROOT / ".pointsman" / "artifacts" / "console"))
"""Where screenshots go."""
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# As root it runs without its own sandbox; it asks nobody on the network for anything.
_SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True, slots=True)
class Found:
    """A browser's program, and the folders of libraries that it brings with it."""

    program: Path
    libraries: tuple[Path, ...] = ()


def find_browser() -> Found | None:
    """A browser on the PATH, or the one that fetch.sh unpacked."""
    for name in NAMES:
        if program := shutil.which(name):
            return Found(Path(program))
    unpacked = TOOLS / "usr" / "lib" / "chromium" / "chromium-headless-shell"
    if not unpacked.is_file():
        return None
    # Every folder that holds a shared library: where Debian puts them depends on the machine's architecture.
    return Found(unpacked, tuple(sorted({each.parent for each in TOOLS.rglob("*.so*")})))


@asynccontextmanager
async def open_browser(found: Found) -> AsyncIterator[Browser]:
    """Yield a running browser without a window."""
    from playwright.async_api import async_playwright

    environment = dict(os.environ)
    if found.libraries:
        environment["LD_LIBRARY_PATH"] = ":".join(map(str, found.libraries))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=found.program, args=list(_SWITCHES), env=dict(environment), timeout=60_000
        )
        try:
            yield browser
        finally:
            await browser.close()


class Watched:
    """A page that remembers what went wrong in it: errors, refused loads, dialogs, calls of other hosts."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith(url) else self.wrong.append(asked.url))

    def unexpected(self, *expected: str) -> list[str]:
        """What went wrong beyond what holds one of the `expected` words."""
        return [each for each in self.wrong if not any(word in each for word in expected)]


@asynccontextmanager
async def open_page(
    browser: Browser,
    url: str,
    *,
    scheme: Literal["light", "dark"] = "light",
    width: int = 1100,
    height: int = 800,
    motion: Literal["reduce", "no-preference"] = "reduce",
) -> AsyncIterator[Watched]:
    """Yield the console in a tab of its own, loaded."""
    context = await browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": height}, reduced_motion=motion
    )
    context.set_default_timeout(15_000)
    try:
        watched = Watched(await context.new_page(), url)
        await watched.page.goto(url + "/")
        yield watched
    finally:
        await context.close()
