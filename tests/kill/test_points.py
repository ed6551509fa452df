"""Death at every named step leaves the bits of an unkilled run; a verdict's leaves the ledger whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.retention import fold
from tests.harness.kill.deaths import Deaths, deaths, points
from tests.harness.kill.forks import Forks
from tests.harness.kill.points import KILLED
from tests.harness.kill.site import DENSE, SYMMETRIC, embedded
from tests.kill.conftest import StreamIn

pytestmark = pytest.mark.kill
AT = "2026-01-01T00:00:00+00:00"


def test_death_at_every_step(tmp_path: Path, forks: Forks) -> None:
    deaths(tmp_path, embedded, forks, Deaths(DENSE)).check()


def test_death_at_every_step_with_several_partitions(tmp_path: Path, forks: Forks) -> None:
    """Of the loop: those on the disk do not know how many partitions there are."""
    steps = ("poll", "step", "IdWindow", "Progress", "capture", "send", "commit", "link manifest")
    deaths(tmp_path, embedded, forks, Deaths(SYMMETRIC, partitions=2, only=steps)).check()


def test_death_at_every_step_of_kafka(tmp_path: Path, forks: Forks, kafka_in: StreamIn) -> None:
    steps = ("send", "commit", "link manifest")
    deaths(tmp_path, kafka_in, forks, Deaths(SYMMETRIC, partitions=2, only=steps)).check()


def test_death_at_every_step_of_a_verdict_leaves_the_ledger_whole(tmp_path: Path, forks: Forks) -> None:
    for name in ("probed", "killed"):
        assert forks.judge(tmp_path / name) == 0
    assert forks.judge(tmp_path / "probed", record=tmp_path / "record") == 0
    for point in points(tmp_path / "record", 2):
        before = Ledger(LocalStore(tmp_path / "killed")).entries()
        assert forks.judge(tmp_path / "killed", *point) == KILLED, point
        entries = Ledger(LocalStore(tmp_path / "killed")).entries()
        assert entries[: len(before)] == before
        assert len(entries) <= len(before) + 1
    assert [entry.n for entry in entries] == list(range(1, len(entries) + 1))


def test_death_at_every_step_of_a_fold_loses_and_doubles_nothing(tmp_path: Path, forks: Forks) -> None:
    for name in ("probed", "killed"):
        folded_once(tmp_path / name)
    assert forks.fold(tmp_path / "probed", record=tmp_path / "record") == 0
    said = Ledger(LocalStore(tmp_path / "killed")).entries()
    steps = {name for name, _ in points(tmp_path / "record", 2)}
    assert {"after link snapshot", "after unlink ledger entry", "before unlink snapshot"} <= steps
    for place, point in enumerate(points(tmp_path / "record", 2)):
        root = tmp_path / f"died {place}"
        shutil.copytree(tmp_path / "killed", root)
        standing = Ledger(LocalStore(root))
        assert standing.entries() == said
        assert forks.fold(root, *point) == KILLED, point
        for ledger in (standing, Ledger(LocalStore(root))):
            assert ledger.whole() == said, point
        added = standing.append({"kind": "KEEP", "version": 99})
        assert forks.fold(root) == 0
        for ledger in (standing, Ledger(LocalStore(root))):
            assert ledger.whole() == [*said, added], point


def folded_once(root: Path) -> None:
    """A ledger of which a part is folded, and as much waits for it."""
    store = LocalStore(root)
    for part in range(2):
        for version in range(8):
            Ledger(store).append({"kind": "KEEP", "version": version, "by": f"part {part}", "at": AT})
        if not part:
            assert fold(store, Ledger(store), lambda: [0], every=4, leave=2) == 6
