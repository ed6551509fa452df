"""What is counted, estimated and told beside the main path of a role: it may fail, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

import structlog
from prometheus_client import Counter

Given = ParamSpec("Given")

log = structlog.get_logger("tripletd.feed")


class SidePaths:
    """Calls them. What one raises is counted under its name, and logged once for each."""

    def __init__(self, errors: Counter) -> None:
        self._errors = errors
        self._logged: set[str] = set()

    def __call__(
        self, name: str, call: Callable[Given, object], *given: Given.args, **named: Given.kwargs
    ) -> None:
        """Call it with the rest, whatever comes of it."""
        try:
            call(*given, **named)
        except Exception:
            self._errors.labels(name).inc()
            if name not in self._logged:
                self._logged.add(name)
                log.exception("a bug beside feeding; feeding goes on", part=name)
