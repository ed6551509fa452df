"""Foreign input: requests to serve."""

from __future__ import annotations

from tests.fuzz.law import ForeignInput

INPUTS: tuple[ForeignInput, ...] = ()
