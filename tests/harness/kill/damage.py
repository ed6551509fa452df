"""Altered bytes in what a learner wrote: none is ever taken for good, and the version before goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from checkpoints import Ledger, VersionStore
from checkpoints.local import Fs
from checkpoints.manifest import seal, unseal
from checkpoints.publisher import Failed
from checkpoints.store import Damaged
from tests.harness.kill.hosted import learn_all
from tests.harness.kill.life import a_site, live
from tests.harness.kill.site import SPARSE, Case, Site
from tests.harness.kill.tally import Tally

Change = tuple[str, bytes]
"""What was done to the bytes, and the bytes it leaves."""


def altered_bytes(folder: Path, most: int, seed: int, case: Case = SPARSE) -> Tally:
    """Truncations and single-byte flips of version and verdict, `most` of each per file (0: every one)."""
    tally = Tally(f"truncations and byte flips, {case}")
    site = a_site(folder, "life", case)
    live(site, Fs())
    newest = site.newest()
    place = site.checkpoints / "versions" / f"{newest.number:010d}"
    accepted = 0
    for path in (place / "manifest.json", place / newest.files[0].name, _verdict(site)):
        whole = path.read_bytes()
        for what, data in _changes(whole, most, random.Random(f"{seed} {path.name}")):
            path.write_bytes(data)
            with tally.case(f"{path.name} {what}"):
                taken = _accepts(site, newest.number, path)
                accepted += taken
                assert not taken, "it was accepted"
        path.write_bytes(whole)
        assert _accepts(site, newest.number, path)
    tally.worst = f"accepted: {accepted}"
    return tally


def _verdict(site: Site) -> Path:
    return min((site.checkpoints / "ledger").iterdir())


def _accepts(site: Site, number: int, path: Path) -> bool:
    try:
        if path.parent.name == "ledger":
            Ledger(site.versions.store).whole()
        else:
            VersionStore(site.versions.store).load(number)
    except Damaged:
        return False
    return True


def _changes(whole: bytes, most: int, rng: random.Random) -> Iterator[Change]:
    lengths = range(len(whole))
    for length in lengths if not most or most >= len(whole) else sorted(rng.sample(lengths, most)):
        yield f"cut to {length} bytes", whole[:length]
    for at in lengths if not most or most >= len(whole) else sorted(rng.sample(lengths, most)):
        yield (
            f"byte {at} flipped",
            whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :],
        )


def learning_on(folder: Path, case: Case = SPARSE) -> Tally:
    """The newest version is damaged in each way: the next start says so and ends with the same bits."""
    tally = Tally(f"starts on a damaged newest version, {case}")
    for name, ruin in WAYS.items():
        with tally.case(name):
            site = a_site(folder / name.replace(" ", "-"), "life", case)
            live(site, Fs())
            whole = site.newest()
            ruin(site, whole.number)
            learner = learn_all(site, Fs())
            assert learner.code == 0, learner.error
            assert not any(isinstance(one, Failed) for one in learner.results)
            again = site.versions.newest_valid()
            assert again is not None
            assert again.manifest.number != whole.number
            assert again.manifest.state_hash == whole.state_hash
            assert again.manifest.counters == whole.counters
    return tally


def _folder(site: Site, number: int) -> Path:
    return site.checkpoints / "versions" / f"{number:010d}"


def _state(site: Site, number: int) -> Path:
    return next(_folder(site, number).glob("state-*"))


def _cut(site: Site, number: int) -> None:
    path = _state(site, number)
    path.write_bytes(path.read_bytes()[:100])


def _swap(site: Site, number: int) -> None:
    older = site.versions.versions()[-2]
    _state(site, number).write_bytes(_state(site, older).read_bytes())


def _empty(site: Site, number: int) -> None:
    for path in _folder(site, number).iterdir():
        path.unlink()


def _no_state(site: Site, number: int) -> None:
    _state(site, number).unlink()


def _future(site: Site, number: int) -> None:
    path = _folder(site, number) / "manifest.json"
    path.write_bytes(seal(unseal(path.read_bytes(), "test") | {"format": 99}))


WAYS = {
    "cut state": _cut,
    "state of another version": _swap,
    "empty folder": _empty,
    "no state": _no_state,
    "future format": _future,
}
