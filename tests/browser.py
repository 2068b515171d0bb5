"""A page of ours in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Visit:
    """One page in a browser without a network, and everything it complained about or asked for."""

    ready = "charts"  # what the page draws last

    def __init__(self, chromium: Any, path: Path, **options: Any) -> None:
        options = {"viewport": {"width": 1200, "height": 900}, **options}
        self.context = chromium(accept_downloads=True, **options)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append("a dialog"))
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.address = path.as_uri()
        self.page.goto(self.address)
        self.page.wait_for_selector(f"html[data-{self.ready}=ready]", timeout=60_000)

    def close(self) -> None:
        """Nothing went wrong, nothing was asked for, nothing was run."""
        hacked = self.page.evaluate("window.hacked")
        self.context.close()
        assert self.complaints == []
        assert hacked is None
        others = [url for url in self.requests if not url.startswith(("data:image/", "blob:"))]
        assert others == [self.address]


@contextmanager
def visits(start: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Starts visits, and closes them all at the end."""
    started = []

    def begin(*given: Any, **options: Any) -> Any:
        started.append(start(*given, **options))
        return started[-1]

    yield begin
    for one in started:
        one.close()
