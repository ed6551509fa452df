"""Foreign input: records of the stream."""

from __future__ import annotations

from tests.fuzz.law import ForeignInput

INPUTS: tuple[ForeignInput, ...] = ()
