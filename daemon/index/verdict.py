"""In which mode the store is used: what users say of each mode, as that store answers.

A version's own verdict speaks of the search of the catalog. Another index finds other objects: a folded query
leaves out the norms of objects, and an approximate search misses some. So each mode is compared with the
owner's ranking by itself, and one that does not hold is not used, whatever the version is worth. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Mode: TypeAlias = Literal["own", "folded", "rescored", "embedded"]
JUDGED: tuple[Mode, ...] = ("rescored", "folded")
"""Those between which verdicts choose, in the order of what is taken where they are alike: the first gives
the served order of its candidates."""
LEAST_QUERIES = 50
"""Fewer held-out queries than this hold nothing up."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """A mode, and why, for people."""

    mode: Mode
    why: str


@dataclass(frozen=True, slots=True)
class ModeVerdict:
    """What held-out lists say of a mode against the owner's ranking: the mean difference of queries, in
    [-1, 1], and its standard error."""

    mean: float
    error: float
    queries: int

    @property
    def holds(self) -> bool:
        """Whether users like it no less than their own ranking, up to one standard error."""
        return self.queries >= LEAST_QUERIES and self.mean >= -self.error

    @property
    def told(self) -> str:
        """In words."""
        if self.queries < LEAST_QUERIES:
            return f"{self.queries} held-out queries, fewer than {LEAST_QUERIES}"
        how = f"{self.mean:+.4f} (error {self.error:.4f})"
        return f"{how} against your own ranking on {self.queries:,} queries"


@dataclass(frozen=True, slots=True)
class IndexVerdict:
    """Verdicts on one version in one store. index: its name. candidates: that were asked for. version: number
    of the version. at: Unix seconds."""

    index: str
    candidates: int
    version: int
    modes: Mapping[str, ModeVerdict]
    at: float

    def to_meta(self) -> dict[str, Any]:
        """As it stands beside its version."""
        modes = {
            name: {"mean": one.mean, "error": one.error, "queries": one.queries}
            for name, one in self.modes.items()
        }
        return {
            "format": FORMAT,
            "index": self.index,
            "candidates": self.candidates,
            "version": self.version,
            "modes": modes,
            "at": self.at,
        }

    @classmethod
    def of_meta(cls, meta: Mapping[str, Any]) -> IndexVerdict | None:
        """Inverse of `to_meta`; None for another format."""
        if meta.get("format") != FORMAT:
            return None
        modes = {name: ModeVerdict(**one) for name, one in meta["modes"].items()}
        return cls(meta["index"], meta["candidates"], meta["version"], modes, meta["at"])


def choose_mode(verdict: IndexVerdict | None, index: str) -> ModeChoice:
    """Which mode is used: the one that users like most of those that hold, within its error the first of
    `JUDGED`; `own` where none does. verdict: the newest, None where there is none."""
    if verdict is None:
        return ModeChoice("own", f"no verdict on {index} yet: tripletd index judge")
    holding = [mode for mode in JUDGED if mode in verdict.modes and verdict.modes[mode].holds]
    if not holding:
        told = "; ".join(f"{name} {one.told}" for name, one in verdict.modes.items())
        return ModeChoice("own", f"version {verdict.version} holds in no mode: {told}")
    best = holding[0]
    for mode in holding[1:]:
        if verdict.modes[mode].mean > verdict.modes[best].mean + verdict.modes[best].error:
            best = mode
    return ModeChoice(best, f"version {verdict.version}: {verdict.modes[best].told}")
