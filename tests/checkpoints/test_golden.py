"""Checkpoints of released formats load for ever. Never rewrite these files; add a folder per format."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from checkpoints import Ledger, LocalStore, PartitionPosition, VersionStore, aliases, array_digest, history

from .samples import meta, same

GOLDEN = Path(__file__).parent / "golden"


def test_format_2_loads(tmp_path: Path) -> None:
    """Versions have a line from here on; a writer that goes on from it stays on it."""
    shutil.copytree(GOLDEN / "v2", tmp_path / "v2")
    versions = VersionStore(LocalStore(tmp_path / "v2"))
    assert versions.versions() == [0, 1]
    newest = versions.newest_valid()
    assert newest is not None
    assert newest.manifest.line == "00112233aabbccdd"
    assert newest.manifest.name == "00112233aabbccdd@1"
    assert same(newest.arrays, {"W": np.arange(4, dtype=np.float32).reshape(2, 2)})
    assert versions.claim().line == "00112233aabbccdd"


def test_a_folder_of_format_1_gets_a_line_with_its_next_version(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "v1", tmp_path / "v1")
    versions = VersionStore(LocalStore(tmp_path / "v1"))
    before = versions.manifest(2)
    assert (before.line, before.name) == ("", "2")
    written = versions.publish(versions.claim(), {"W": np.zeros((2, 2), np.float32)}, meta(2))
    assert len(written.line) == 16
    assert versions.manifest(written.number).line == written.line
    assert versions.claim().line == written.line


def test_format_1_loads(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "v1", tmp_path / "v1")
    versions = VersionStore(LocalStore(tmp_path / "v1"))
    assert versions.versions() == [0, 2]
    assert versions.listing.claims() == [3]
    newest = versions.newest_valid()
    assert newest is not None
    assert same(
        newest.arrays,
        {
            "W": np.arange(9, dtype=np.float32).reshape(3, 3) * 3,
            "window": np.array([2, 3], np.int64),
            "on": np.array([True, False]),
            "half": np.array(0.5, np.float16),
            "none": np.zeros((0, 2), np.uint8),
        },
    )
    manifest = newest.manifest
    assert {spec.name: spec.digest for spec in manifest.arrays} == {
        name: array_digest(array) for name, array in newest.arrays.items()
    }
    assert array_digest(newest.arrays["W"]) == "636422242d3a71bc0fcedbf0e28bc564"
    assert (manifest.number, manifest.parent, manifest.epoch, manifest.seed) == (2, 1, 0, 7)
    assert manifest.positions == {0: PartitionPosition(10, "e" * 64), 11: PartitionPosition(0, None)}
    assert manifest.schedule == ((0, 0, 10), {"control": "resume", "at": 10})
    assert manifest.counters == {"updated": 2, "loss_sum": 1.0}
    assert manifest.watermark == 1_700_000_000_000
    serving = versions.attached(2, "serving")
    assert serving is not None
    assert same(serving[0], {"factor": np.eye(3, dtype=np.float32)})
    assert serving[1] == {"psd": "full"}
    entries = Ledger(versions.store).entries()
    assert [entry.kind for entry in entries] == ["PROMOTE", "STOP"]
    assert aliases(entries) == {"best": 2}
    assert [line["number"] for line in history(versions.store)] == [1]
