"""Foreign input: TOML and the environment."""

from __future__ import annotations

from tests.fuzz.law import ForeignInput

INPUTS: tuple[ForeignInput, ...] = ()
