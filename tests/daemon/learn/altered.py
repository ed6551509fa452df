"""Alterations that no seal shows: what somebody with write access and our code could do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from checkpoints.encoding import ArrayDigests, encode
from checkpoints.manifest import FileEntry, Manifest
from tests.daemon.learn.conftest import Site


def alter_state(site: Site, number: int, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Change a version's arrays, with hashes that fit."""
    version = site.versions.load(number)
    change(version.arrays)
    encoded = encode(version.arrays)
    digests = ArrayDigests(encoded)
    data = b"".join(bytes(part) for part in digests.passing(encoded.parts()))
    entry = FileEntry(version.manifest.files[0].name, encoded.size, sha256(data).hexdigest())
    _rewrite(site, number, entry.name, data)
    alter_manifest(site, number, files=(entry,), arrays=digests.specs(), state_hash=entry.sha256)


def alter_manifest(site: Site, number: int, **fields: Any) -> None:
    """Change fields of a version's manifest, and seal it again."""
    changed: Manifest = replace(site.versions.manifest(number), **fields)
    _rewrite(site, number, "manifest.json", changed.to_json())


def alter_event(site: Site, partition: int, offset: int, value: bytes) -> None:
    """Put another value where a record of an embedded log is."""
    with closing(sqlite3.connect(site.folder / "clicks.log")) as log, log:
        update = f"UPDATE records_1_{partition} SET value = ? WHERE offset = ?"
        assert log.execute(update, (value, offset)).rowcount == 1


def _rewrite(site: Site, number: int, name: str, data: bytes) -> None:
    path = site.folder / "checkpoints" / "versions" / f"{number:010}" / name
    path.unlink()
    path.write_bytes(data)
