"""The one thread that changes what a replica serves: it looks, loads, takes steps and flips."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import structlog
from numpy.typing import NDArray

from checkpoints.errors import CheckpointError
from checkpoints.ledger import LedgerEntry
from daemon.replica.board import Board
from daemon.replica.choose import Keep, Load, Seen, Served, choose
from daemon.replica.desk import Desk
from daemon.replica.line import REASONS, Lost
from daemon.replica.model import ModelId
from daemon.replica.refine import Work
from daemon.replica.refusals import Refusals, Refused
from daemon.replica.settings import Shelf
from daemon.replica.stepping import NO_TIMES, Stepper, Told
from daemon.replica.swapping import Swapper
from daemon.versions.contents import records_of

POLL_S = 0.05
TURN_S = 0.05
PATIENCE_S = 5.0
"""How long a version that is listed may still come as a relabel from the step log, before it is loaded."""
AFTER_BUG_S = 1.0

Times = NDArray[np.int64]

log = structlog.get_logger("tripletd.replica")


class Follower:
    """Decides by `choose` and `Line`, acts by `Swapper` and `Stepper`; `run` is the body of its thread.

    A model that answers is told to `told`, after the flip; the ledger to `looked`, before what follows of it.
    """

    def __init__(
        self,
        *,
        alias: str,
        shelf: Shelf,
        look_every_s: float,
        desk: Desk,
        swapper: Swapper,
        board: Board,
        told: Told,
        looked: Callable[[Sequence[LedgerEntry]], None] | None = None,
    ) -> None:
        self._alias, self._shelf, self._look_every_s = alias, shelf, look_every_s
        self._desk, self._swapper, self._board, self._told = desk, swapper, board, told
        self._looked = looked
        self._stepper: Stepper | None = None
        self._refusals = Refusals(alias)
        self._served: Served | None = None
        self._reload: int | None = None
        self._look_at = 0.0
        self._listed_at: dict[int, float] = {}
        self._work: deque[Work] = deque(maxlen=1)

    def follow(self, stepper: Stepper) -> None:
        """Follow the learner step by step; before `run`."""
        self._stepper = stepper

    def hand_in(self, work: Work) -> None:
        """Work of the refiner's, shown at the next turn; what was handed in and not shown yet is dropped."""
        self._work.append(work)

    def run(self, stop: threading.Event) -> None:
        """Turns until `stop`; never ends by an error."""
        while not stop.is_set():
            try:
                self._turn(stop)
            except Exception:
                log.exception("following failed; what is served goes on answering", alias=self._alias)
                self._recover()
                stop.wait(AFTER_BUG_S)
        if self._stepper is not None:
            self._stepper.close()

    def shown(self, model: ModelId, result: str, times: Times) -> None:
        """Steps or a label have become what answers."""
        entry = 0 if self._served is None else self._served.entry
        self._served = Served(model.version, entry)
        self._board.served(model, result)
        self._told(model, result, times)

    def _turn(self, stop: threading.Event) -> None:
        for work in (self._install, self._look, self._step):
            settled = self._desk.settle()
            joined = self._stepper is not None and self._stepper.joined
            self._board.stands(joined, self._desk.stuck())
            if not settled:
                return
            work()
        if self._stepper is None or self._served is None:
            stop.wait(TURN_S)

    def _install(self) -> None:
        """Show what the refiner made, unless another version was loaded meanwhile."""
        if not self._work or self._desk.unshown:
            return
        work = self._work.popleft()
        if work.error is not None:
            self._board.measured(work.error)
        model = self._desk.install(work)
        if model is not None:
            self.shown(model, "refine", NO_TIMES)

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + self._look_every_s
        try:
            versions = self._shelf.versions.versions()
            entries = self._shelf.ledger.entries(report=self._doubt)
        except (CheckpointError, OSError) as error:
            self._board.looked(f"the versions cannot be listed: {error}", self._refusals.counts)
            return
        if self._looked is not None:
            self._looked(entries)
        self._refusals.keep(set(versions))
        decision = self._decide(Seen(versions, entries, self._refusals.barred(now)), now)
        if isinstance(decision, Load):
            self._load(decision, now)
        else:
            self._keep(decision)

    def _decide(self, seen: Seen, now: float) -> Keep | Load:
        """`choose`, but for a version that the step log says to load again, until it is loaded."""
        reload = self._reload
        if reload is not None and reload in seen.versions and reload not in seen.barred and self._served:
            return Load(reload, self._served.entry)
        return choose(self._alias, seen, self._served, self._awaits(seen, now))

    def _awaits(self, seen: Seen, now: float) -> bool:
        """Whether newer versions may still come from the step log: none was listed longer than PATIENCE_S."""
        served = -1 if self._served is None else self._served.number
        newer = [number for number in seen.versions if number > served]
        self._listed_at = {number: self._listed_at.get(number, now) for number in newer}
        if self._stepper is None or not self._stepper.promising:
            return False
        return all(now - listed < PATIENCE_S for listed in self._listed_at.values())

    def _keep(self, decision: Keep) -> None:
        if decision.older is not None:
            self._refusals.older(decision.older, decision.why)
        if self._served is not None:
            self._served = Served(self._served.number, decision.entry)
        self._board.looked(decision.why, self._refusals.counts)

    def _load(self, decision: Load, now: float) -> None:
        unshown = self._desk.unshown
        try:
            manifest, seconds = self._swapper.swap(decision.number)
        except Refused as refused:
            if self._stepper is not None and unshown:
                self._fall_back(self._stepper.abandon())  # the load has overwritten half a record
            self._refusals.add(decision.number, refused, now)
            self._board.looked(str(refused), self._refusals.counts)
            self._look_at = now  # the next best is looked for at once
            return
        self._served, self._reload = Served(decision.number, decision.entry), None
        model = ModelId(manifest.number, 0, manifest.watermark, records_of(manifest))
        if self._stepper is not None:
            self._stepper.begin(manifest)
        self._board.served(model, "version", seconds)
        self._board.looked("", self._refusals.counts)
        self._told(model, "version", NO_TIMES)
        log.info("a version is served", alias=self._alias, version=manifest.number, seconds=seconds)

    def _step(self) -> None:
        if self._stepper is None or self._served is None:
            return
        lost = self._stepper.turn(POLL_S, time.monotonic())
        if lost is not None:
            self._fall_back(lost)

    def _fall_back(self, lost: Lost) -> None:
        self._board.fell_back(lost.reason)
        log.warning("the step log is left", alias=self._alias, reason=lost.reason, why=REASONS[lost.reason])
        self._reload, self._look_at = lost.reload, 0.0

    def _recover(self) -> None:
        """After a failure midway nothing is known of the idle side, nor how far the steps were taken."""
        self._desk.spoil()
        if self._stepper is not None and self._served is not None:
            self._fall_back(replace(self._stepper.abandon(), reload=self._served.number))

    def _doubt(self, error: CheckpointError) -> None:
        log.warning("a verdict cannot be read", alias=self._alias, why=str(error))
