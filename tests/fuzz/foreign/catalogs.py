"""Foreign input: catalog files, and what describe reads."""

from __future__ import annotations

from tests.fuzz.law import ForeignInput

INPUTS: tuple[ForeignInput, ...] = ()
