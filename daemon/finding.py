"""What one check of `tripletd check` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Grade = Literal["ok", "note", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: ok, note (works, but look) or error; with its remedy."""

    key: str
    grade: Grade
    text: str
    remedy: str = ""
