"""In which mode the store is used: what users' clicks say of each mode, with that store's answers; kept with
the versions.

A version's own verdict speaks of the search of the catalog. Another index finds other objects: a folded query
leaves out the norms of objects, and an approximate search misses some. So each mode is compared with the
owner's ranking by itself, and one that does not hold is not used, whatever the version is worth.

A store of vectors that a version exported cannot be asked for the owner's ranking: that one mode is compared
with the owner's ranking of the catalog, and the catalog is searched where it does not hold.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import structlog

from checkpoints import VersionStore
from checkpoints.store import CheckpointError, KeyExists

Mode: TypeAlias = Literal["own", "folded", "rescored", "embedded", "catalog"]
"""What the store is asked; `catalog`: it is not, and the catalog is searched."""
JUDGED: tuple[Mode, ...] = ("rescored", "folded")
"""Those between which verdicts choose, in the order of what is taken where they are alike: the first gives
the served order of its candidates."""
EXPORTED: tuple[Mode, ...] = ("embedded",)
"""The same where the store holds vectors that a version exported."""
LEAST_QUERIES = 50
"""Fewer held-out queries than this hold nothing up."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class JudgedStore:
    """What a verdict is on. index: the store's name. candidates: how many it is asked for. exported: it holds
    vectors that a version exported."""

    index: str
    candidates: int
    exported: bool = False

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Those that are judged."""
        return EXPORTED if self.exported else JUDGED


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
    def summary(self) -> str:
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

    def is_on(self, store: JudgedStore) -> bool:
        """Whether it is on this store, and as it is asked now."""
        asked = self.index == store.index and self.candidates == store.candidates
        return asked and set(self.modes) <= set(store.modes)

    def to_meta(self) -> dict[str, Any]:
        """As it is kept with its version."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def of_meta(cls, meta: Mapping[str, Any]) -> IndexVerdict | None:
        """Inverse of `to_meta`; None for another format."""
        if meta.get("format") != FORMAT:
            return None
        modes = {name: ModeVerdict(**one) for name, one in meta["modes"].items()}
        return cls(meta["index"], meta["candidates"], meta["version"], modes, meta["at"])


def choose_mode(verdict: IndexVerdict | None, store: JudgedStore) -> ModeChoice:
    """Which mode is used: the one that users like most of those that hold, within its error the first of
    `JUDGED`; where none does, `own`, or `catalog` of exported vectors. verdict: the newest on this store,
    None where there is none. Pure."""
    rest: Mode = "catalog" if store.exported else "own"
    if verdict is None:
        told = f"no verdict on {store.index} yet with {store.candidates} candidates: tripletd index judge"
        return ModeChoice(rest, told)
    holding = [mode for mode in store.modes if mode in verdict.modes and verdict.modes[mode].holds]
    if not holding:
        reasons = "; ".join(f"{name} {one.summary}" for name, one in verdict.modes.items())
        return ModeChoice(rest, f"version {verdict.version} holds in no mode: {reasons}")
    best = holding[0]
    for mode in holding[1:]:
        if verdict.modes[mode].mean > verdict.modes[best].mean + verdict.modes[best].error:
            best = mode
    return ModeChoice(best, f"version {verdict.version}: {verdict.modes[best].summary}")


ATTACHED = "index"
LOOK_EVERY_S = 10.0
MOST = 100
"""Times that one version is judged."""
REMEMBERED = 16

log = structlog.get_logger("tripletd.index")


def keep_verdict(versions: VersionStore, verdict: IndexVerdict) -> None:
    """Write a verdict next to its version. Raises CheckpointError, and KeyExists after `MOST` of them."""
    for number in range(MOST):
        try:
            versions.attach(verdict.version, f"{ATTACHED}-{number}", {}, verdict.to_meta())
        except KeyExists:
            if number + 1 == MOST:
                raise
            continue
        return


def read_verdict(versions: VersionStore, version: int, store: JudgedStore) -> IndexVerdict | None:
    """The newest on this version in this store, None where there is none. Raises CheckpointError."""
    newest = None
    for number in range(MOST):
        meta = versions.attached_meta(version, f"{ATTACHED}-{number}")
        if meta is None:
            break
        found = IndexVerdict.of_meta(meta)
        if found is not None and found.is_on(store):
            newest = found
    return newest


def newest_verdict(versions: VersionStore, version: int, store: JudgedStore) -> IndexVerdict | None:
    """On this version, or on the newest one before it that was judged; vectors that were exported are of this
    version alone. Raises CheckpointError."""
    if store.exported:
        return read_verdict(versions, version, store)
    for number in sorted(versions.versions(), reverse=True):
        if number <= version:
            found = read_verdict(versions, number, store)
            if found is not None:
                return found
    return None


class KeptVerdicts:
    """Which mode the verdicts choose for a version. Any thread; the files are read again every `every_s`."""

    def __init__(
        self,
        versions: VersionStore,
        store: JudgedStore,
        every_s: float = LOOK_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._versions, self._store = versions, store
        self._every_s, self._clock = every_s, clock
        self._known: dict[int, tuple[float, ModeChoice]] = {}
        self._lock = threading.Lock()

    def mode_of(self, version: int) -> ModeChoice:
        """The choice for a version; what was chosen last while the files cannot be read."""
        with self._lock:
            known = self._known.get(version)
            if known is not None and self._clock() - known[0] < self._every_s:
                return known[1]
            try:
                choice = choose_mode(newest_verdict(self._versions, version, self._store), self._store)
            except CheckpointError as error:
                log.warning("verdicts on the store cannot be read", index=self._store.index, why=str(error))
                choice = known[1] if known is not None else choose_mode(None, self._store)
            if known is None or known[1] != choice:
                log.info("how the store is asked", index=self._store.index, mode=choice.mode, why=choice.why)
            self._known[version] = (self._clock(), choice)
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]
            return choice
