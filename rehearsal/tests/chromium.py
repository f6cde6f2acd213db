"""A real browser for the pages."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

PATIENCE_MS = 180_000
"""What has not come by then never will, however slow the machine is."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass(frozen=True)
class Browser:
    """One whose pages are waited for until they are certainly stuck."""

    opened: Any

    def new_context(self, **how: Any) -> Any:
        """Pages that share what they remember."""
        return _patient(self.opened.new_context(**how))

    def new_page(self, **how: Any) -> Any:
        """A page by itself."""
        return _patient(self.opened.new_page(**how))


def _patient(made: Any) -> Any:
    made.set_default_timeout(PATIENCE_MS)
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, driven by Playwright; where it is not installed the test is skipped."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(
            executable_path=CHROMIUM,
            timeout=PATIENCE_MS,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield Browser(opened)
        opened.close()
