"""Foreign input: click logs, mappings, and what feed --follow reads."""

from __future__ import annotations

from tests.fuzz.law import ForeignInput

INPUTS: tuple[ForeignInput, ...] = ()
