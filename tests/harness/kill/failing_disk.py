"""Every filesystem call of a learner's life fails once: it learns on, tells, and recovers by itself."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from checkpoints.manifest import Manifest
from tests.checkpoints.disk import FaultyDisk
from tests.harness.kill.life import Life, a_site, live, reference, temporary_files
from tests.harness.kill.site import SPARSE, Case
from tests.harness.kill.tally import Tally

ERRORS = (errno.EIO, errno.ENOSPC)
Point = tuple[str, str, int]


def failing_calls(folder: Path, most: int, seed: int, case: Case = SPARSE) -> Tally:
    """Fail one call per life, `most` lives per error (0: every call), as many kinds of call as possible."""
    tally = Tally(f"failed filesystem calls, {case}")
    expected = reference(folder / "reference", case)
    disk = FaultyDisk(folder / "count" / "life")
    live(a_site(folder / "count", "life", case), disk.fs)
    refused = alarms = missed = 0
    for error in ERRORS:
        for n, point in enumerate(_chosen(disk.passed, most, random.Random(f"{seed} {error}"))):
            with tally.case(f"{errno.errorcode[error]} at {point}"):
                life = _with_failure(folder / f"{error}-{n}", point, error, expected, case)
                refused += len(life.refused)
                alarms += int(life.alarms)
                missed += life.missed
    with tally.case("calls that were made"):
        assert missed <= tally.tried // 4, f"{missed} of {tally.tried} calls were never made"
    tally.tried -= 1 + missed
    tally.worst = f"{len(disk.passed)} kinds of call; {alarms} alarms, {refused} starts refused and repeated"
    return tally


def _with_failure(folder: Path, point: Point, error: int, expected: Manifest, case: Case) -> Life:
    site = a_site(folder, "life", case)
    disk = FaultyDisk(site.checkpoints, error=error)
    disk.fail_on = point
    life = live(site, disk.fs)
    life.missed = disk.passed[point[:2]] < point[2]  # how often it looks at the ledger depends on the clock
    assert temporary_files(site) <= 1, "temporary files pile up"
    loaded = site.versions.newest_valid(_never)
    assert loaded is not None
    assert loaded.manifest.state_hash == expected.state_hash
    assert loaded.manifest.counters == expected.counters
    assert life.alarms == life.failed, "a version that could not be written raises the alarm, once"
    assert not disk.retried, "a file whose fsync had failed was synced again"
    assert temporary_files(site) == 0
    return life


def _never(error: Exception) -> None:
    raise AssertionError(f"a damaged version was left: {error}")


def _chosen(passed: Counter[tuple[str, str]], most: int, rng: random.Random) -> Iterator[Point]:
    """Calls to fail, `most` in all: one of each kind first, as far as that goes, then others by chance."""
    every = [(*pair, n) for pair, count in sorted(passed.items()) for n in range(1, count + 1)]
    if not most:
        yield from every
        return
    kinds = [(*pair, rng.randint(1, count)) for pair, count in sorted(passed.items())]
    rng.shuffle(kinds)
    others = sorted(set(every) - set(kinds))
    yield from kinds[:most]
    yield from rng.sample(others, max(0, min(most - len(kinds), len(others))))
