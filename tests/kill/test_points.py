"""Death at every named step of the loop and of publishing: what is on disk is what an unkilled run had there.

After each death every version must equal, at its own position, a run over the same events one by one; every
poison that its position passed must be in the dead-letter topic. Power loss: `tests/checkpoints`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from checkpoints.encoding import state_hash
from checkpoints.ledger import Ledger
from checkpoints.local import LocalStore
from checkpoints.manifest import Manifest
from checkpoints.retention import history
from daemon.learn.apply import step
from daemon.learn.assemble import Assembler
from daemon.learn.describe import decoder_of, learner_config_of
from daemon.learn.pipeline import Ready
from daemon.learn.progress import Progress
from daemon.learn.replay import replay
from daemon.learn.state import State
from streams.open import open_sink, open_source
from streams.source import OutRecord
from tests.kill.harness import (
    DENSE_VIEW,
    SPARSE_VIEW,
    Site,
    dead_letters,
    event_bytes,
    is_poison,
    make_site,
)
from tests.kill.points import KILLED

EVERY = 10  # records between versions
RUN = 60  # records waiting at each start
DIES = 2  # deaths per step: at its first passing, and at as many more

pytestmark = pytest.mark.kill

Order = Callable[..., int]
Trace = tuple[str, dict[str, float], int | None, str | None]


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Order]:
    """Runs one `learn` or `judge` that dies at a step; its exit code."""
    said = tmp_path_factory.mktemp("points") / "stderr"
    command = [sys.executable, "-m", "tests.kill.points"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def give(what: str, path: Path, name: str = "", nth: int = 0, record: Path | None = None) -> int:
        line = {"what": what, "path": str(path), "name": name, "nth": nth, "stderr": str(said)}
        server.stdin.write(json.dumps({**line, "record": record and str(record)}) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        assert code in (0, KILLED), said.read_text()
        return code

    yield give
    server.stdin.close()
    server.wait()


class Stream:
    """The events of one test, written as they are needed."""

    def __init__(self, site: Site, sparse: bool) -> None:
        self._sink, self._sparse, self._rng = open_sink(site.address), sparse, np.random.default_rng(8)
        self.written = 0

    def write_up_to(self, end: int) -> None:
        numbers = range(self.written, max(end, self.written))
        self._sink.send([OutRecord(event_bytes(self._rng, number, self._sparse)) for number in numbers])
        self.written = max(end, self.written)


class Reference:
    """State and progress after each record, from version 0 on, one record at a time, never stopped."""

    def __init__(self, site: Site) -> None:
        first = site.versions.load(0)
        self._state = State.of_version(first, learner_config_of(first.manifest))
        self._decoder, self._assembler = decoder_of(first.manifest, None), Assembler(self._state.fitted, None)
        self._progress = Progress(dict(first.manifest.positions))
        self._address = site.address
        self.at: dict[int, Trace] = {0: trace(first.manifest)}

    def follow(self) -> None:
        """Learn what was written since."""
        with closing(open_source(self._address)) as source:
            source.assign(self._progress.next_offsets())
            while (batch := source.poll(1, 0.0)) is not None:
                decoded = self._decoder.decode(batch)
                ready = Ready(batch, decoded, self._assembler.triplets(decoded), 0.0, 0.0)
                self._progress.advance(step(self._state, ready, "t").applied)
                now = self._progress.snapshot()
                digest = state_hash(self._state.arrays())
                position = now.positions[0]
                self.at[position.next_offset] = (digest, now.counters, now.watermark, position.last_digest)


def trace(version: Manifest) -> Trace:
    digest = version.positions[0].last_digest
    return version.state_hash, version.counters, version.watermark, digest


def check(site: Site, reference: Reference | None) -> None:
    """Nothing damaged, every version as if never killed, no poison passed in silence."""
    versions = site.versions
    newest = versions.newest_valid(lambda error: pytest.fail(str(error)))
    if newest is None:
        return
    passed = {(0, offset) for offset in range(newest.manifest.positions[0].next_offset) if is_poison(offset)}
    assert passed <= dead_letters(site)
    if reference is not None:
        for number in versions.versions():
            manifest = versions.manifest(number)
            assert trace(manifest) == reference.at[manifest.positions[0].next_offset]


def points(record: Path, until: str = "") -> list[tuple[str, int]]:
    """(step, passing) worth dying at, in the order they were first passed; up to the first `until`."""
    names = record.read_text(encoding="utf-8").splitlines()
    passed = Counter(names[: names.index(until) + 1] if until else names)
    return [(name, nth) for name, count in passed.items() for nth in range(1, min(count, DIES) + 1)]


@pytest.mark.parametrize(
    ("view", "learner"),
    [(DENSE_VIEW, "C = 0.1"), (SPARSE_VIEW, 'C = 0.1\nsymmetric = "online"\npsd_every = 7')],
    ids=["dense, fitted map", "sparse, symmetric, projected"],
)
def test_death_at_every_step_leaves_the_bits_of_an_unkilled_run(
    tmp_path: Path, order: Order, view: str, learner: str
) -> None:
    settings = {"view": view, "learner": learner, "every": "1h", "every_events": EVERY, "poll_records": 4}
    probed, killed = (make_site(tmp_path, name, keep=3, **settings) for name in ("probed", "killed"))
    stream = Stream(killed, sparse=view == SPARSE_VIEW)
    stream.write_up_to(RUN)
    for run in ("start", "resume"):
        assert order("learn", probed.config, record=tmp_path / run) == 0
        stream.write_up_to(stream.written + RUN)
    for point in points(tmp_path / "start", until="before link manifest"):
        assert order("learn", killed.config, *point) == KILLED, point
        assert not list(killed.checkpoints.glob("versions/*/manifest.json")), point
    assert order("learn", killed.config, "after link manifest", 1) == KILLED
    reference = Reference(killed)
    for point in points(tmp_path / "resume"):
        reference.follow()
        check(killed, reference)
        stream.write_up_to(killed.newest().positions[0].next_offset + RUN)
        assert order("learn", killed.config, *point) == KILLED, point
    reference.follow()
    check(killed, reference)
    assert order("learn", killed.config) == 0
    check(killed, reference)
    last = killed.newest()
    assert last.positions[0].next_offset == last.counters["records"] == stream.written
    with closing(open_source(killed.address)) as source:
        assert replay(killed.versions, source, None, 0, last.number).equal
    assert history(killed.versions.store)
    assert not list((killed.checkpoints / "tmp").iterdir())


def test_death_at_every_step_of_a_verdict_leaves_the_ledger_whole(tmp_path: Path, order: Order) -> None:
    for name in ("probed", "killed"):
        assert order("judge", tmp_path / name) == 0
    assert order("judge", tmp_path / "probed", record=tmp_path / "record") == 0
    for point in points(tmp_path / "record"):
        before = Ledger(LocalStore(tmp_path / "killed")).entries()
        assert order("judge", tmp_path / "killed", *point) == KILLED, point
        entries = Ledger(LocalStore(tmp_path / "killed")).entries()
        assert entries[: len(before)] == before
        assert len(entries) <= len(before) + 1
    assert [entry.n for entry in entries] == list(range(1, len(entries) + 1))
