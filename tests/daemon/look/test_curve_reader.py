"""The same history after restarts, pruning and damage, read from a store once per version."""

from __future__ import annotations

import json

import numpy as np
import pytest

from checkpoints import Epoch, Ledger, Manifest, VersionMeta, VersionStore, prune
from checkpoints.store import manifest_key
from daemon.look.curves import CurveReader
from tests.harness.memory_store import MemoryStore


class Writer:
    """Writes small versions into a store; `counts` how often each key is read."""

    def __init__(self) -> None:
        self.store = Counted()
        self.versions, self.ledger = VersionStore(self.store), Ledger(self.store)
        self.epoch: Epoch | None = None

    def restart(self) -> None:
        self.epoch = self.versions.claim()

    def write(self, parent: int | None, events: int) -> Manifest:
        assert self.epoch is not None
        meta = VersionMeta(parent=parent, counters={"updated": events, "records": events, "loss_sum": events})
        manifest = self.versions.publish(self.epoch, {"W": np.zeros(2, np.float32)}, meta)
        measures = {"events": events, "map_full": events / 1000, "version_0": {"map_full": 0.1}}
        self.ledger.append({"kind": "KEEP", "version": manifest.number, "measures": measures})
        return manifest

    def prune(self, keep: int) -> list[int]:
        return prune(self.versions, lambda: (), keep, lambda: None)

    def curves(self) -> CurveReader:
        return CurveReader(VersionStore(self.store), Ledger(self.store))


class Counted(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def get(self, key: str) -> bytes:
        self.read.append(key)
        return super().get(key)


@pytest.fixture
def writer() -> Writer:
    made = Writer()
    made.restart()
    parent = None
    for events in (0, 100, 200, 300):
        parent = made.write(parent, events).number
    return made


def events_of(reader: CurveReader) -> list[list[int]]:
    return [line.series("map_full").events for line in reader.read().lines]


def test_a_restart_goes_on_with_the_same_line(writer: Writer) -> None:
    newest = writer.versions.versions()[-1]
    writer.restart()
    writer.write(newest, 400)
    curves = writer.curves().read()
    assert [point.events for point in curves.current.points] == [0, 100, 200, 300, 400]
    assert len({point.epoch for point in curves.current.points}) == 2


def test_pruned_versions_stay_in_the_history(writer: Writer) -> None:
    before = writer.curves().read()
    assert writer.prune(keep=2) == [1]
    assert writer.curves().read() == before


def test_versions_that_came_and_went_between_two_looks_are_found(writer: Writer) -> None:
    reader = writer.curves()
    reader.read()
    parent = writer.versions.versions()[-1]
    for events in range(400, 1000, 100):
        parent = writer.write(parent, events).number
    writer.prune(keep=2)
    assert events_of(reader) == [list(range(0, 1000, 100))]


def test_going_back_makes_a_line_of_what_was_left(writer: Writer) -> None:
    first = writer.versions.versions()[0]
    writer.restart()
    writer.write(first, 50)
    assert events_of(writer.curves()) == [[0, 50], [0, 100, 200, 300]]


def test_a_version_is_read_once_and_the_pruned_ones_only_when_one_is_missing(writer: Writer) -> None:
    writer.prune(keep=2)
    reader = writer.curves()
    reader.read()
    writer.store.read.clear()
    reader.read()
    assert [key for key in writer.store.read if "ledger" not in key] == []


def test_a_damaged_manifest_hides_no_other_and_is_told(writer: Writer) -> None:
    number = writer.versions.versions()[2]
    writer.store.delete(manifest_key(number))
    writer.store.put_new(manifest_key(number), [b"{}"])
    reader = writer.curves()
    assert events_of(reader) == [[0, 100, 200, 300]]  # its judgment still says where it stood
    assert any(manifest_key(number) in note for note in reader.notes)


def test_torn_lines_of_pruned_versions_hide_no_other(writer: Writer) -> None:
    writer.store.append_line("history.jsonl", b'{"number": 1, "par')
    writer.store.append_line("history.jsonl", json.dumps({"number": 9, "damaged": "torn"}).encode())
    writer.prune(keep=2)
    assert events_of(writer.curves()) == [[0, 100, 200, 300]]
