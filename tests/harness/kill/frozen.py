"""A learner that was frozen while another took over: thawed, it leaves and has written nothing more.

A frozen process keeps its lock of the folder, so whoever starts the other one has to say `--take-over`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.exits import EX_CANTCREAT, EX_OK, EX_TEMPFAIL
from tests.checkpoints.power import snapshot
from tests.harness.kill.forks import Forks
from tests.harness.kill.learners import Learner, catch_up, wait_until
from tests.harness.kill.letters import Letters
from tests.harness.kill.random_kills import same_effect
from tests.harness.kill.site import SPARSE, Case, Site, make_site
from tests.harness.kill.tally import Tally
from tests.harness.kill.written import Written

WAITING = 60  # records for the learner that freezes, and as many for the one that takes over
SETTINGS = {"every": "1h", "every_events": 10, "poll_records": 4, "keep": 2}


@dataclass(frozen=True)
class Frozen:
    """Where it freezes, and what a thawed learner may still finish there."""

    step: str
    nth: int = 1
    versions_lost: int = 0
    letters_repeated: int = 0


PLACES = (
    Frozen("after link manifest"),  # its claim: before it reads the newest version
    Frozen("before step"),
    Frozen("before capture"),
    Frozen("before create temporary", 2),
    Frozen("before fsync temporary", 2),
    Frozen("before link manifest", 2),
    Frozen("after link state"),
    Frozen("before VersionCleanup _prune"),
    Frozen("before open_append history"),
    Frozen("after fsync history"),
    Frozen("before unlink manifest", versions_lost=1),  # between the look at who writes and the deletion
    # A batch of its dead letters: the look comes before. Meanwhile another thread may be about to delete.
    Frozen("before send", versions_lost=1, letters_repeated=4),
)
"""Steps of a learner that goes on from a version; the first `link manifest` is its claim."""


def frozen_and_succeeded(
    folder: Path,
    stream_in: Callable[[Path], str],
    forks: Forks,
    places: Sequence[Frozen] = PLACES,
    case: Case = SPARSE,
) -> Tally:
    """Freeze a learner at each place, let another take over and finish, thaw the first."""
    tally = Tally(f"frozen, succeeded, thawed, {case}")
    for number, place in enumerate(places):
        with tally.case(str(place)):
            site = make_site(_new(folder, number), stream_in(folder / str(number)), case=case, **SETTINGS)
            _freeze_once(site, place, forks)
    lost, repeated = (sum(place.versions_lost for place in places), sum(p.letters_repeated for p in places))
    tally.worst = f"a thawed learner may finish {lost} deletion and repeat {repeated} dead letters"
    return tally


def _freeze_once(site: Site, place: Frozen, forks: Forks) -> None:
    events = Written(site)
    events.more(WAITING)
    catch_up(site, forks)
    events.more(WAITING)
    with forks.fused(site, place.step, place.nth, "freeze") as frozen:
        wait_until(frozen.frozen, frozen)
        _let_the_successor_keep_all(site)
        with forks(site, "--exit-when-caught-up", "--take-over") as successor:
            assert successor.wait() == EX_OK, successor.said()
        before, letters = snapshot(site.checkpoints), Letters(site)
        letters.look()
        sent = len(letters.letters)
        events.more(WAITING)  # else it may find that nothing is left to do
        frozen.signal(signal.SIGCONT)
        _leaves(frozen)
        assert f"process {successor.pid}" in frozen.said(), frozen.said()
    letters.look()
    assert len(letters.letters) - sent <= place.letters_repeated, "dead letters were sent again"
    _has_written_nothing(before, snapshot(site.checkpoints), place)
    same_effect(catch_up(site, forks), catch_up(site.again("whole", every="1h"), forks))


def _let_the_successor_keep_all(site: Site) -> None:
    """Else it would itself delete what the frozen one was about to delete."""
    make_site(site.folder, str(site.address), case=site.case, **(SETTINGS | {"keep": 1000}))


def _leaves(frozen: Learner) -> None:
    code = frozen.wait()
    assert code == EX_CANTCREAT, f"{code}: {frozen.said()}"
    assert "has taken" in frozen.said(), frozen.said()


HISTORY = "history.jsonl"


def _has_written_nothing(before: dict[str, bytes], after: dict[str, bytes], place: Frozen) -> None:
    """But for one line of history, which another thread may have been about to write after it had looked
    whether it still may, and what the place allows."""
    stands = {path for path in before if not path.startswith("tmp/")}
    gone = {path for path in stands - after.keys() if path.endswith("manifest.json")}
    assert len(gone) <= place.versions_lost, f"deleted: {gone}"
    written = {path for path in after if path not in stands or before[path] != after[path]}
    assert written <= {HISTORY}, f"written: {written}"
    lines = after.get(HISTORY, b"").count(b"\n") - before.get(HISTORY, b"").count(b"\n")
    assert lines <= 1, f"{lines} lines of history were written"


def started_together(
    folder: Path, stream_in: Callable[[Path], str], forks: Forks, times: int, case: Case = SPARSE
) -> Tally:
    """Two learners at once, on an empty folder and on one with versions: one goes on, one is refused."""
    tally = Tally(f"two starts at once, {case}")
    for number in range(times):
        with tally.case(f"pair {number}"):
            site = make_site(_new(folder, number), stream_in(folder / str(number)), case=case)
            events = Written(site)
            for _ in range(2):
                _start_two(site, events, forks)
            same_effect(catch_up(site, forks), catch_up(site.again("whole", every="1h"), forks))
    return tally


def _start_two(site: Site, events: Written, forks: Forks) -> None:
    with forks(site) as one, forks(site) as other:

        def ended() -> bool:
            events.more(5)
            return not (one.running and other.running)

        wait_until(ended)
        left, stays = (other, one) if one.running else (one, other)
        code = left.wait()
        assert code == EX_TEMPFAIL, f"{code}: {left.said()}"
        assert f"another learner (process {stays.pid}) on this host" in left.said()
        wait_until(lambda: f'"process": {left.pid}' in stays.said(), stays)  # both sides say so
        written = site.versions.versions()[-1]

        def goes_on() -> bool:
            events.more(5)
            return site.versions.versions()[-1] > written + 3

        wait_until(goes_on, stays)
        stays.signal(signal.SIGTERM)
        assert stays.wait() == EX_OK, stays.said()


def _new(folder: Path, number: int) -> Path:
    (folder / str(number)).mkdir(parents=True)
    return folder / str(number)
