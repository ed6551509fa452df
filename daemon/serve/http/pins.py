"""Questions that say which state they need at least, so that a client of several servers never goes back.

Servers swap a moment apart, and follow the learner's steps each at its own pace. A client that has had an
answer of one state sends that state with its next question, in the header `X-Tripletd-At-Least`:

| value | met by |
|---|---|
| `LINE@RECORDS`, the `line` and `records` of an answer | a state of that line with so many records or more |
| `NUMBER` | a version of that number, or a state after it |

A server that is behind waits a bounded time for it, and then says 503 with Retry-After, which proxies and
clients take for: ask another one. `records` and not the version orders states, because a server at "12+3400"
may have learned from more records than another at "13".
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers

from daemon.serve.http.errors import RETRY_AFTER_S, Problem
from daemon.serve.query import AnsweringModel

AT_LEAST = "X-Tripletd-At-Least"
LOOK_S = 0.02
"""Between two looks of a question that waits."""
_LINE, _NUMBER = "[A-Za-z0-9_-]{0,64}", "[0-9]{1,18}"
PATTERN = f"^(?:{_LINE}@)?{_NUMBER}$"
"""What the header takes, as the OpenAPI document says it (ECMA-262)."""
_VALUE = re.compile(f"(?:(?P<line>{_LINE})@)?(?P<number>{_NUMBER})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Pin:
    """The least state. line: its line of history, "" where answers name none; None: `number` is that of a
    version, else records since version 0."""

    line: str | None
    number: int

    def reached(self, line: str, version: int, records: int) -> bool:
        """Whether a state is this one or a later one. line, version, records: as answers have them."""
        if self.line is None:
            return version >= self.number
        return line == self.line and records >= self.number

    def __str__(self) -> str:
        return f"version {self.number}" if self.line is None else f"{self.line}@{self.number}"


def asked_pin(headers: Headers) -> Pin | None:
    """What a question needs at least; None where it does not say. Raises Problem 422."""
    given = headers.getlist(AT_LEAST)
    if not given:
        return None
    found = _VALUE.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        message = "expected the number of a version, or LINE@RECORDS"
        remedy = "send `line` and `records` of an answer with an @ between them"
        raise Problem(422, "bad_value", f"{AT_LEAST}: {message}", AT_LEAST, remedy)
    return Pin(found["line"], int(found["number"]))


def require_reached(pin: Pin | None, origins: Sequence[Mapping[str, Any]]) -> None:
    """Raises Problem 503 unless all models of an answer have reached it. origins: `schemas.Origin`."""
    if pin is None:
        return
    for one in origins:
        if not pin.reached(one["line"] or "", one["base"], one["records"]):
            raise _behind(pin, f"version {one['version']}, {one['line'] or ''}@{one['records']}")


class PinWaiter:
    """Waits for a state, `wait_s` at most. current: the model of an alias now; None: answers alone tell."""

    def __init__(
        self, current: Callable[[str], AnsweringModel | None] | None = None, wait_s: float = 0.5
    ) -> None:
        self._current, self._wait_s = current, wait_s

    async def reach(self, pin: Pin | None, aliases: Sequence[str]) -> None:
        """Return when the models of all aliases have reached it. Raises Problem 503 after `wait_s`; a name
        that has no model is left to the search."""
        if pin is None or self._current is None:
            return
        deadline = time.monotonic() + self._wait_s
        while True:
            models = [model for name in aliases if (model := self._current(name)) is not None]
            lacking = [one for one in models if not pin.reached(one.line, one.version, one.total)]
            if not lacking:
                return
            if time.monotonic() >= deadline:
                raise _behind(pin, f"version {lacking[0]}, {lacking[0].line}@{lacking[0].total}")
            await asyncio.sleep(LOOK_S)


def _behind(pin: Pin, here: str) -> Problem:
    message = f"the question needs {pin} at least, and here is {here}"
    remedy = "ask another server, or again in a moment; if the name was moved back, ask without it"
    return Problem(503, "behind", message, AT_LEAST, remedy, retry_after=RETRY_AFTER_S)
