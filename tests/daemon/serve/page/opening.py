"""The page in a browser that complains: what the tests of the page share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from tests.harness.chromium import PATIENCE_MS

PICTURES = Path(__file__).parents[4] / ".cache" / "page"
"""Where screenshots are left to be looked at."""
WIDTHS = {"desktop": (1440, 900), "phone": (390, 844)}


@contextmanager
def opened(
    chromium: Browser,
    address: str,
    width: str = "desktop",
    scheme: str = "light",
    forgiven: tuple[str, ...] = (),
) -> Iterator[Page]:
    """The page, opened; complaints of the browser and requests to anybody else fail the test at its end.

    forgiven: what complaints that a test makes on purpose contain, such as the number of an HTTP error.

    All tests of a browser have one tab, because another takes longer than the page: what a page may keep
    there belongs to its address, which is another one in every test.
    """
    wide, high = WIDTHS[width]
    page = _tab(chromium)
    page.set_viewport_size({"width": wide, "height": high})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    complaints: list[str] = []
    asked: list[str] = []
    hearing: dict[Any, Callable[[Any], None]] = {
        "console": lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None,
        "pageerror": lambda error: complaints.append(str(error)),
        "request": lambda request: asked.append(request.url),
    }
    for what, hear in hearing.items():
        page.on(what, hear)
    try:
        page.goto(address)
        yield page
        assert [told for told in complaints if not any(one in told for one in forgiven)] == []
        assert [url for url in asked if not url.startswith((f"{address}/", f"blob:{address}/"))] == []
    finally:
        for what, hear in hearing.items():
            page.remove_listener(what, hear)
        page.mouse.move(0, 0)
        page.goto("about:blank")
        page.context.clear_cookies()


def _tab(chromium: Browser) -> Page:
    """The tab of this browser, new or left empty by the test before."""
    if not chromium.contexts:
        context = chromium.new_context()
        context.set_default_timeout(PATIENCE_MS)
        context.new_page()
    return chromium.contexts[0].pages[0]


def points(page: Page, chart: str) -> Locator:
    """The chart once it has drawn something."""
    drawn = page.locator(f"#{chart}")
    expect(drawn).to_have_attribute("data-points", re.compile(r"[1-9]\d*"))
    return drawn


def wait_for_pictures(page: Page) -> None:
    """Until every picture has come, or has not.

    Not by `wait_for_function`: asked again later, it counts as eval by the page, which the policy forbids.
    """
    page.evaluate(
        "Promise.all([...document.images].filter((one) => !one.complete)"
        ".map((one) => new Promise((done) => { one.onload = one.onerror = done; })))"
    )


def fits(page: Page, width: str) -> bool:
    """Whether nothing makes the page wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0])


def photograph(page: Page, name: str) -> None:
    """Leave a picture of the whole page."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
