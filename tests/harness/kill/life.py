"""A learner's whole life on one disk: it starts from nothing, is judged, is restarted, and learns to the end.

Version 0, a claim, captures, pruning with its history, and a verdict's entry are all in it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from checkpoints.entries import LedgerEntry
from checkpoints.ledger import Ledger
from checkpoints.local import Fs, LocalStore
from checkpoints.manifest import Manifest
from checkpoints.publisher import Failed, Published
from checkpoints.store import CheckpointError
from daemon.exits import as_user_error
from streams.open import open_sink
from streams.source import OutRecord
from tests.harness.kill.events import numbered_event
from tests.harness.kill.hosted import FAILURES, learn_all
from tests.harness.kill.site import SPARSE, Case, Site, make_site

EVENTS = 60  # in each of the two parts
SETTINGS = {"every": "1h", "every_events": 10, "poll_records": 4, "keep": 2}
STARTS = 3


@dataclass
class Life:
    """How it went: starts that were refused, versions that could not be written, alarms for them."""

    refused: list[str] = field(default_factory=list)
    failed: int = 0
    alarms: float = 0
    missed: bool = False


def a_site(folder: Path, name: str, case: Case = SPARSE) -> Site:
    """A site on a stream in memory, which only this process sees."""
    folder.mkdir(parents=True, exist_ok=True)
    return make_site(folder, f"memory:{folder}-{name}", name, case=case, **SETTINGS)


def feed(site: Site, seed: int = 8, count: int = EVENTS, first: int = 0) -> None:
    """Events `first` up to `first + count`, each the same in every life."""
    case = site.case
    records = [
        OutRecord(numbered_event(seed, number, case.sparse, case.key(number)))
        for number in range(first, first + count)
    ]
    with closing(open_sink(site.address)) as sink:
        sink.send(records)


Heard = Callable[[Published | Failed | LedgerEntry], None]
"""Told of each version and verdict when its writer knows what became of it."""


def live(site: Site, fs: Fs, heard: Heard = lambda _: None) -> Life:
    """Live it; a refused start is tried again, as a supervisor would."""
    life = Life()
    feed(site)
    _learn(site, fs, life, heard)
    _judge(site, fs, life, heard)
    feed(site, first=EVENTS)
    _learn(site, fs, life, heard)
    return life


def reference(folder: Path, case: Case = SPARSE) -> Manifest:
    """The newest version of a life on a disk that never failed."""
    site = a_site(folder, "reference", case)
    life = live(site, Fs())
    assert not life.refused
    assert not life.failed
    return site.newest()


def temporary_files(site: Site) -> int:
    """How many there are, before anything sweeps them."""
    folder = site.checkpoints / "tmp"
    return len(list(folder.iterdir())) if folder.exists() else 0


def _learn(site: Site, fs: Fs, life: Life, heard: Heard) -> None:
    for _ in range(STARTS):
        learner = learn_all(site, fs, heard)
        failed = [one for one in learner.results if isinstance(one, Failed)]
        life.failed += len(failed)
        life.alarms += learner.metric(FAILURES)
        if learner.code == 0:
            return
        assert learner.error is not None
        assert learner.events() == 0, f"it had begun to learn, and then it left: {learner.error}"
        told = as_user_error(learner.error)
        assert told is not None
        assert told.remedy, told
        life.refused.append(str(told))
    raise AssertionError(f"refused {STARTS} times: {life.refused}")


def _judge(site: Site, fs: Fs, life: Life, heard: Heard) -> None:
    """A verdict of a validator; it says so and is tried again when the disk refuses."""
    newest = site.newest().number
    for _ in range(STARTS):
        try:
            entry = {"kind": "PROMOTE", "alias": "best", "version": newest, "by": "test"}
            heard(Ledger(LocalStore(site.checkpoints, fs)).append(entry))
        except CheckpointError as error:
            life.refused.append(str(error))
        else:
            return
    raise AssertionError(f"no verdict could be written: {life.refused}")
