"""A Chromium without a window: the one that TRIPLETD_CHROMIUM names, else one on the PATH."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell")
PATIENCE_MS = 60_000
"""How long an expectation may take to come true: the machine may be busy with other tests."""
_REMEDY = (
    "install one (Debian: apt-get install chromium; Fedora: dnf install chromium-headless), "
    "or point TRIPLETD_CHROMIUM at one"
)
# /dev/shm is small in containers; root may not use the sandbox, and no page but ours is opened.
_ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb")


class ChromiumMissing(Exception):
    """No browser can be started; the message says what to install."""


@cache
def chromium() -> Path:
    """The browser's program. Raises ChromiumMissing."""
    told = os.environ.get("TRIPLETD_CHROMIUM")
    candidates = [told] if told else [found for name in NAMES if (found := shutil.which(name))]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return Path(candidate)
    tried = f" ({told} cannot be run)" if told else ""
    raise ChromiumMissing(f"no Chromium{tried}: {_REMEDY}")


@contextmanager
def browser() -> Iterator[Browser]:
    """A started browser without a window; it ends with the context. Raises ChromiumMissing."""
    program = chromium()
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=_ARGUMENTS, timeout=2 * PATIENCE_MS
        )
        try:
            yield started
        finally:
            started.close()


if __name__ == "__main__":
    try:
        print(chromium())
    except ChromiumMissing as problem:
        sys.exit(str(problem))
