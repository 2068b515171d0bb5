"""What tests of several rooms need."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


# Every change is judged by the same draws; `make test-all` draws anew.
settings.register_profile("same draws", derandomize=True)
if "UNIPROTO_NEW_DRAWS" not in os.environ:
    settings.load_profile("same draws")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A real browser, for the pages we write; where there is none, their tests are skipped.

    Called, it opens a context without a network, in which no scrolling is drawn out: a click
    on a button that is still gliding over the screen would now and then miss it.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip(
            "no Chromium on this machine: the page is not tested in a browser "
            "(apt install chromium)"
        )
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=path, args=_FLAGS)
        except playwright.Error as error:
            pytest.skip(f"Chromium does not start here: {str(error).splitlines()[0]}")
        yield functools.partial(browser.new_context, offline=True, reduced_motion="reduce")
        browser.close()
