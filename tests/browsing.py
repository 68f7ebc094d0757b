"""Fixtures for tests in a real browser; `conftest` hands them to every test."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Playwright driving the Chromium of this machine; tests are skipped if there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    from playwright.sync_api import sync_playwright

    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=args)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser) -> Iterator[Callable[..., Any]]:
    """Open an address in a new page, with options of Playwright's contexts such as viewport.

    At the end of the test, errors in a page's console and requests to anywhere but its own origin fail the test.
    """
    contexts, problems = [], []

    def open_one(address: str, **options: Any) -> Any:
        origin = urlsplit(address)[:2]
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: _is_outside(request.url, origin) and problems.append(request.url))
        page.goto(address)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert problems == []


def _is_outside(address: str, origin: tuple[str, str]) -> bool:
    parts = urlsplit(address)
    return parts.scheme not in ("data", "blob") and parts[:2] != origin
