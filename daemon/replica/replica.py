"""A replica of one alias: follows it in threads of its own, and gives readers a consistent model.

One thread changes what is served: it looks, loads, takes steps and flips. Another refines the form.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from checkpoints.entries import LATEST, MOVES, LedgerEntry
from checkpoints.manifest import Manifest
from checkpoints.store import CheckpointError
from checkpoints.versions import LOSS_MESSAGES, FolderWatch, VersionStore
from daemon.replica.buffer_writer import CannotCatchUp, DoubleBufferWriter, Swapper
from daemon.replica.buffers import LeftRight, ModelBuffer
from daemon.replica.decide import REASONS, Keep, Load, Lost, ServedVersion, StoreListing, choose
from daemon.replica.form_updates import form_updater_of
from daemon.replica.loading import (
    BufferArrays,
    RejectedVersions,
    VersionRejected,
    answers_of,
    load_order,
    state_room,
)
from daemon.replica.refine import NICE, Refiner, RefineResult
from daemon.replica.settings import Flip, FollowSettings, Hooks, OpenStepLog, VersionSource
from daemon.replica.step_applier import NO_TIMES, StepApplier, StepLogReader
from daemon.replica.view import BY_FORM, CarryError, ModelId, NotServing, ReplicaStatus, View
from daemon.runtime.watchdog import BackgroundThread, end_all, give_way
from daemon.versions.contents import APPLIED, counted, records_of, watermark_of
from daemon.versions.order import Answering
from daemon.versions.shards import MergeRecord
from streams.source import Quiet


class StatusTracker:
    """A `ReplicaStatus` that is replaced as a whole, so that a reader never sees half of a change. One thread
    writes it.
    """

    def __init__(self, alias: str) -> None:
        self._fallbacks: Counter[str] = Counter()
        self._swaps: Counter[str] = Counter()
        self._status = ReplicaStatus(alias, None, None, "no version was looked for yet", "versions")

    @property
    def status(self) -> ReplicaStatus:
        """A snapshot of the replica's state."""
        return self._status

    def served(self, model: ModelId, result: str, seconds: Mapping[str, float] | None = None) -> None:
        """A model answers from now on; `seconds` by phase where a whole version was swapped in."""
        self._swaps[result] += 1
        phases = {} if seconds is None else {"swap_seconds": dict(seconds)}
        self._set(model=model, since=time.time(), swaps=dict(self._swaps), **phases)

    def set_why_not_newer(self, why: str, refusals: Mapping[str, int]) -> None:
        """Why nothing newer is served, "" when there is nothing; versions refused so far, by reason."""
        self._set(why_not_newer=why, refusals=dict(refusals))

    def behind(self, since: float | None) -> None:
        """Since when something newer has been there than what answers, seconds since the epoch."""
        self._set(behind_since=since)

    def folder(self, how: str, losses: Mapping[str, int]) -> None:
        """How the checkpoint folder is lost, "" while it is not, and how often it was, by how."""
        self._set(folder=how, folder_losses=dict(losses))

    def fell_back(self, reason: str) -> None:
        """The step log was lost."""
        self._fallbacks[reason] += 1
        self._set(fallbacks=dict(self._fallbacks))

    def stands(self, joined: bool, stuck: tuple[str, ...]) -> None:
        """Whether steps are being followed, and which readers do not leave."""
        self._set(following="steps" if joined else "versions", stuck=stuck)

    def orders(self, answers: Answering) -> None:
        """How the version that answers orders and searches."""
        self._set(answers=answers)

    def measured(self, refined: CarryError) -> None:
        """What carrying the form over had cost."""
        self._set(carried=refined)

    def _set(self, **changes: Any) -> None:
        if any(getattr(self._status, name) != value for name, value in changes.items()):
            self._status = replace(self._status, **changes)


TURN_S, IDLE_TURN_S = 0.05, 0.2
"""How soon a turn comes: after something new was shown, and after long silence; steps come at once, as fast
as their log tells of them.
"""
RELABEL_WAIT_S = 5.0
"""How long a version that is listed may still come as a relabel from the step log, before it is loaded."""
AFTER_BUG_S = 1.0

Times = NDArray[np.int64]

log = structlog.get_logger("tripletd.replica")


class Follower(BackgroundThread):
    """Decides by `choose` and `Line`, acts by `Swapper` and `Stepper`.

    `on_flip` is called with a model after the flip to it (see `settings.Flip`), `on_ledger` with the ledger
    before it is acted on.
    """

    def __init__(
        self,
        *,
        alias: str,
        source: VersionSource,
        look_every_s: float,
        writer: DoubleBufferWriter,
        swapper: Swapper,
        board: StatusTracker,
        on_flip: Callable[[ModelId, str, Times, int | None], None],
        on_ledger: Callable[[Sequence[LedgerEntry]], None] | None = None,
    ) -> None:
        self.name = f"replica-{alias}"
        super().__init__()
        self._stopping = threading.Event()
        self._alias, self._source, self._look_every_s = alias, source, look_every_s
        self._writer, self._swapper, self._board, self._on_flip = writer, swapper, board, on_flip
        self._on_ledger = on_ledger
        self._stepper: StepApplier | None = None
        self._refusals = RejectedVersions(alias)
        self._served: ServedVersion | None = None
        self._reload: int | None = None
        self._look_at = 0.0
        self._entries: Sequence[LedgerEntry] = ()
        self._answers_at: tuple[Sequence[LedgerEntry], int, Answering] = ((), -1, BY_FORM)
        self._ordered: tuple[int, Answering] = (-1, BY_FORM)  # what given lists are ordered by
        self._moves: Sequence[LedgerEntry] = ()
        self._folder = FolderWatch(source.versions)  # of the version that answers, or lies behind what does
        self._listed_at: dict[int, float] = {}
        self._behind_at: float | None = None
        self._caught_up: int | None = None
        self._behind_with: ServedVersion | None = None
        self._work: deque[RefineResult] = deque(maxlen=1)
        self._quiet = Quiet(TURN_S, IDLE_TURN_S)

    def follow(self, stepper: StepApplier) -> None:
        """Follow the learner step by step; before `start`."""
        self._stepper = stepper

    def hand_in(self, work: RefineResult) -> None:
        """Work of the refiner's, shown at the next turn; what was handed in and not shown yet is dropped."""
        self._work.append(work)

    def stop(self) -> None:
        """End after the turn it is at."""
        self._stopping.set()

    def _run(self) -> None:
        """Turns until `stop`; never ends by an error."""
        if self._stepper is None:
            give_way(NICE)
        while not self._stopping.is_set():
            try:
                self._turn()
            except Exception:
                log.exception("following failed; what is served still answers", alias=self._alias)
                self._writer.spoil()  # nothing is known of the idle side, nor how far the steps were taken
                if self._stepper is not None and self._served is not None:
                    self._fall_back(replace(self._stepper.abandon(), reload=self._served.number))
                self._stopping.wait(AFTER_BUG_S)
        if self._stepper is not None:
            self._stepper.listener.close()

    def shown(self, model: ModelId, result: str, times: Times) -> None:
        """Steps or a label have become what answers."""
        entry = 0 if self._served is None else self._served.entry
        self._served = ServedVersion(model.version, entry)
        mine = self._folder.mine
        if mine is not None and model.version != mine.number:
            self._folder.works_with(manifest_of(self._source.versions, model.version) or mine)
        self._quiet.broken()
        self._board.served(model, result)
        self._on_flip(model, result, times, None)

    def _turn(self) -> None:
        for work in (self._install, self._look, self._step):
            settled = self._writer.settle()
            joined = self._stepper is not None and self._stepper.listener.line.joined
            self._board.stands(joined, self._writer.stuck())
            if not settled:
                return
            work()
        if self._stepper is None or self._served is None:
            self._stopping.wait(self._quiet.rest_s())

    def _install(self) -> None:
        if not self._work or self._writer.unshown:
            return
        work = self._work.popleft()
        if work.error is not None:
            self._board.measured(work.error)
        model = self._writer.install(work)
        if model is not None:
            self.shown(model, "refine", NO_TIMES)

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + self._look_every_s
        try:
            versions = self._source.versions.listing.poll()
            entries = self._source.ledger.poll(
                report=lambda why: log.warning("a verdict cannot be read", alias=self._alias, why=str(why))
            )
        except (CheckpointError, OSError) as error:
            self._stands_behind(True)
            self._board.set_why_not_newer(f"the versions cannot be listed: {error}", self._refusals.counts)
            return
        if self._on_ledger is not None:
            self._on_ledger(entries)
        if entries is not self._entries:
            self._entries, self._moves = entries, [one for one in entries if one.kind in MOVES]
        self._refusals.keep(set(versions))
        folder = self._folder
        before = folder.how
        folder.look(versions, now)
        if folder.how and not before and folder.mine is not None:
            newest = max(versions, default=-1)
            message = f"{LOSS_MESSAGES[folder.how]}. The loaded version keeps answering"
            log.error(message, alias=self._alias, answers=folder.mine.name, newest=newest)
        self._board.folder(folder.how, folder.losses)
        replaced = folder.is_replaced
        seen = StoreListing(versions, self._moves, self._refusals.barred(now))
        decision = choose(self._alias, seen, None) if replaced else self._decide(seen, now)
        self._stands_behind(replaced or self._is_behind(decision, versions))
        if isinstance(decision, Load):
            self._load(decision, now)
        else:
            self._keep(decision)
            self._follow_order(seen, now)

    def _is_behind(self, decision: Keep | Load, versions: Sequence[int]) -> bool:
        if self._served is None:
            return False
        if self._alias == LATEST:
            return bool(versions) and max(versions) > self._served.number
        if isinstance(decision, Load):
            return decision.number != self._served.number
        return bool(decision.why) and decision.older is None

    def _stands_behind(self, behind: bool) -> None:
        if not behind:
            self._behind_at = None
        elif self._behind_at is None or self._behind_with != self._served:
            self._behind_at, self._behind_with = time.time(), self._served
        self._board.behind(self._behind_at)

    def _decide(self, seen: StoreListing, now: float) -> Keep | Load:
        """`choose`, but for a version that the step log says to load again, until it is loaded."""
        reload = self._reload
        if reload is not None and reload in seen.versions and reload not in seen.barred and self._served:
            return Load(reload, self._served.entry)
        return choose(self._alias, seen, self._served, self._awaits(seen, now))

    def _awaits(self, seen: StoreListing, now: float) -> bool:
        """Whether newer versions may still come from the step log: none was listed longer than PATIENCE_S."""
        served = -1 if self._served is None else self._served.number
        newer = [number for number in seen.versions if number > served]
        self._listed_at = {number: self._listed_at.get(number, now) for number in newer}
        if self._stepper is None or not self._stepper.listener.promising:
            return False
        return all(now - listed < RELABEL_WAIT_S for listed in self._listed_at.values())

    def _keep(self, decision: Keep) -> None:
        if decision.older is not None:
            self._refusals.older(decision.older, decision.why)
        if self._served is not None:
            self._served = ServedVersion(self._served.number, decision.entry)
        mine, how = self._folder.mine, self._folder.how
        lost = f"the folder lacks {mine.name}: {LOSS_MESSAGES[how]}" if mine is not None and how else ""
        self._board.set_why_not_newer("; ".join(filter(None, (lost, decision.why))), self._refusals.counts)

    def _answers(self, number: int) -> Answering:
        """How a version answers by the ledger as it was read last."""
        entries, known, answers = self._answers_at
        if entries is not self._entries or known != number:
            answers = answers_of(self._alias, self._entries, number)
            self._answers_at = self._entries, number, answers
        return answers

    def _follow_order(self, seen: StoreListing, now: float) -> None:
        """Answer as the ledger says now. A version that begins or ceases to search is loaded again; otherwise
        only what orders given lists is, also where steps have come to be a newer version."""
        served = self._served
        if served is None or served.number in seen.barred or served.number not in seen.versions:
            return
        answers = self._answers(served.number)
        if (served.number, answers) == self._ordered:
            return
        if answers.reach != self._ordered[1].reach:
            self._load(Load(served.number, served.entry), now)
            return
        try:
            self._writer.order_by(answers, load_order(self._source, served.number, answers))
        except VersionRejected as refused:
            self._refusals.add(served.number, refused, now)
            return
        self._ordered = served.number, answers
        self._board.orders(answers)

    def _load(self, decision: Load, now: float) -> None:
        unshown, answers = self._writer.unshown, self._answers(decision.number)
        try:
            manifest, seconds = self._swapper.swap(decision.number, answers, self._catch_up)
        except VersionRejected as refused:
            if self._stepper is not None and (unshown or self._caught_up is not None):
                self._fall_back(self._stepper.abandon())  # the load has overwritten half a record
                self._caught_up = None
            self._refusals.add(decision.number, refused, now)
            self._board.set_why_not_newer(str(refused), self._refusals.counts)
            self._look_at = now  # the next best is looked for at once
            return
        self._quiet.broken()
        self._served, self._reload = ServedVersion(decision.number, decision.entry), None
        self._ordered = decision.number, answers
        self._board.orders(answers)
        self._folder.works_with(manifest)
        self._board.folder("", self._folder.losses)
        model = ModelId(manifest.number, 0, watermark_of(manifest), records_of(manifest), manifest.line)
        times = NO_TIMES
        if self._stepper is not None and self._caught_up == manifest.number:
            model, times, self._caught_up = self._stepper.model, self._stepper.shown(), None
        elif self._stepper is not None:
            self._stepper.begin(manifest)
        self._board.served(model, "version", seconds)
        self._board.set_why_not_newer("", self._refusals.counts)
        self._on_flip(model, "version", times, counted(manifest.counters, *APPLIED))
        log.info("a version is served", alias=self._alias, version=manifest.number, seconds=seconds)

    def _catch_up(self, manifest: Manifest) -> ModelId | None:
        """Take what was shown before and a merged version lacks, since shards learn on while it is made."""
        if self._stepper is None or MergeRecord.in_version(manifest) is None:
            return None
        self._caught_up = manifest.number
        if not self._stepper.catch_up(manifest):
            self._caught_up = None
            raise CannotCatchUp
        return self._stepper.model

    def _step(self) -> None:
        if self._stepper is None or self._served is None:
            return
        lost = self._stepper.turn(self._quiet.rest_s(), time.monotonic())
        if lost is not None:
            self._fall_back(lost)

    def _fall_back(self, lost: Lost) -> None:
        self._board.fell_back(lost.reason)
        log.warning("the step log is left", alias=self._alias, reason=lost.reason, why=REASONS[lost.reason])
        self._reload, self._look_at = lost.reload, 0.0


def manifest_of(versions: VersionStore, number: int) -> Manifest | None:
    """A version's manifest; None where it cannot be read."""
    try:
        return versions.manifest(number)
    except CheckpointError:
        return None


CLOSE_S = 10.0
FOLLOWING, HOOKS = FollowSettings(), Hooks()


class Replica:
    """Follows `alias`: `latest`, `best`, `stable`, `own`, a pinned name or a version's number.

    With `steps`, which `latest` alone can have, the learner is followed event by event behind the newest
    version; else whole versions are. Memory: two sides of the learner's state (W: 4 d^2 bytes) each, where
    its form is a matrix of that too, and with `steps` of a third; with `steps` one more state to make forms
    from. All of it is allocated here, none per swap, but for the matrix of each side that orders lists.
    """

    def __init__(
        self,
        alias: str,
        source: VersionSource,
        following: FollowSettings = FOLLOWING,
        hooks: Hooks = HOOKS,
        steps: OpenStepLog | None = None,
    ) -> None:
        if steps is not None and alias != LATEST:
            raise ValueError(f"only {LATEST} can be followed step by step, not {alias}")
        self._alias, self._hooks, self._stepping = alias, hooks, steps is not None
        self._board = StatusTracker(alias)
        space, carry = source.space, form_updater_of(source)
        self._sides = LeftRight(
            *(ModelBuffer(BufferArrays.of(space, source.serving, self._stepping), carry) for _ in range(2))
        )
        writer = DoubleBufferWriter(self._sides, space.algorithm, following.drain_s)
        swapper = Swapper(source, hooks, self._sides, writer, self._stepping)
        self._follower = Follower(
            alias=alias,
            source=source,
            look_every_s=following.look_every_s,
            writer=writer,
            swapper=swapper,
            board=self._board,
            on_flip=self._tell,
            on_ledger=hooks.on_ledger,
        )
        self._refiner = Refiner(
            alias,
            sides=self._sides,
            spare=state_room(space) if self._stepping else None,
            hooks=hooks,
            following=following,
            results=self._follower.hand_in,
        )
        if steps is not None:
            listener = StepLogReader(alias, steps)
            shown, on_steps = self._follower.shown, self._refiner.on_steps
            manifest = partial(manifest_of, source.versions)
            self._follower.follow(StepApplier(writer, listener, shown, on_steps, manifest))
        self.threads: tuple[BackgroundThread, ...] = (self._follower, self._refiner)

    def start(self) -> None:
        """Begin to follow; returns at once. `status().model` says when something is served."""
        for thread in self.threads:
            thread.start()

    @contextmanager
    def read(self) -> Iterator[View]:
        """A consistent model for the length of the block. Raises NotServing with the reason."""
        with self._sides.read() as side:
            view = side.view
            if view is None:
                raise NotServing(f"nothing is served as {self._alias} yet: {self.status().why_not_newer}")
            yield view

    def prepare_again(self) -> None:
        """Have `prepare` called again off the path, since the items have changed; returns at once."""
        self._refiner.ask()

    def status(self) -> ReplicaStatus:
        """What is served, since when, why not newer, and what happened so far."""
        return self._board.status

    def close(self) -> None:
        """Stop all threads; what was served stays readable. Waits for a hook or a load CLOSE_S at most."""
        end_all(self.threads, lambda _: CLOSE_S)

    def _tell(self, model: ModelId, result: str, times: NDArray[np.int64], events: int | None = None) -> None:
        try:
            self._hooks.flipped(Flip(self._alias, model, result, times, events))
        except Exception:
            log.exception("a hook for flips failed", alias=self._alias)
