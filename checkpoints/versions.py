"""Numbered versions in a store: claim, publish, load; files computed from them later; and whether the store
still has the one that somebody works with. FORMAT.md has the rules on disk.

A checkpoint folder may be gone, emptied or an older copy. Every role looks: the learner at what it wrote,
all others, with `FolderWatch`, at the version they work with. Each continues with what it has, and says so
until the folder has it again, or something newer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.commit import (
    Epoch,
    Listing,
    StateFile,
    claim,
    commit,
    discard,
    next_state_key,
    read_manifest,
    read_manifests,
)
from checkpoints.encoding import ArrayDigests, Destination, encode, fresh, load_arrays
from checkpoints.manifest import ArraySpec, Manifest, VersionMeta, digest, file_name, open_sealed, seal
from checkpoints.store import (
    BadKey,
    BlobStore,
    CheckpointError,
    Damaged,
    KeyMissing,
    OnDamage,
    check_name,
    folder,
    is_away,
)

FORMAT = 1
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Version:
    """A loaded version: its manifest and its arrays (writable, C-contiguous, 64-byte aligned)."""

    manifest: Manifest
    arrays: dict[str, np.ndarray]


class VersionStore:
    """Versions in `store`. Reading needs no claim; publishing does. `listing` tells versions from claims."""

    def __init__(self, store: BlobStore) -> None:
        self.store = store
        self.listing = Listing(store)

    def versions(self) -> list[int]:
        """Committed versions, ascending; claims are hidden, damaged ones are not."""
        return self.listing.versions()

    def manifest(self, number: int) -> Manifest:
        """The manifest of `number`. Raises Damaged or FutureFormat."""
        return read_manifest(self.store, number)

    def manifests(self, numbers: Sequence[int]) -> list[Manifest | Damaged]:
        """The manifest of each number, or why it cannot be read; several at once where each is a request.

        Raises Unreachable.
        """
        return read_manifests(self.store, numbers)

    def newest_manifest(self) -> Manifest | None:
        """The newest manifest that can be read; None without one. The version itself may still not load.

        Raises Unreachable: an older one is not the newest because a server does not answer.
        """
        found = (one for _, one in self.listing.newest_first())
        return next((one for one in found if isinstance(one, Manifest)), None)

    def load(self, number: int, destination: Destination = fresh) -> Version:
        """Version `number`, every size and hash verified while reading, without a second copy.

        `destination` says where to read each array to, by default a new one; those it only wants verified
        are not in the result. It is asked for arrays that the manifest names alone; after an error, what it
        gave holds anything. Raises Damaged, or FutureFormat by name; nothing unverified is ever returned.
        """
        return self._load(self.manifest(number), destination)

    def _load(self, manifest: Manifest, destination: Destination) -> Version:
        place = folder(manifest.number)
        if manifest.kind != "version" or len(manifest.files) != 1:
            message = f"is a {manifest.kind} with {len(manifest.files)} files, not a version with one"
            raise Damaged("mismatch", place, message)
        entry = manifest.files[0]
        key = place + entry.name
        wanted, seen = set(manifest.arrays), set[ArraySpec]()
        other = Damaged("mismatch", key, "its arrays are not the names, dtypes and shapes of its manifest")

        def checked(spec: ArraySpec) -> np.ndarray | None:
            if spec not in wanted:
                raise other
            seen.add(spec)
            return destination(spec)

        arrays = load_arrays(self.store, key, entry.size, entry.sha256, checked)
        if seen != wanted:
            raise other
        if manifest.state_hash != entry.sha256:
            raise Damaged("mismatch", place, "state_hash is not the sha256 of the state file")
        return Version(manifest, arrays)

    def newest_valid(self, report: OnDamage | None = None) -> Version | None:
        """The newest version that loads, None when there is none. Newer ones that do not load go to `report`.

        A writer calls it after `claim`, so that no older writer can add a newer version meanwhile.
        """
        for _, found in self.listing.newest_first():
            try:
                if isinstance(found, Damaged):
                    raise found
                return self._load(found, fresh)
            except Damaged as error:
                if report is not None:
                    report(error)
        return None

    def claim(self, after: int = -1, line: str | None = None) -> Epoch:
        """Become the writer, fencing off older ones, then read `newest_valid`. Raises WriteFailed.

        after, line: see `checkpoints.commit.claim`.

        On an empty store nothing is written yet: publish version 0 next, that put is the claim.
        """
        return claim(self.store, after, line)

    def publish(self, epoch: Epoch, arrays: Arrays, meta: VersionMeta) -> Manifest:
        """Write `arrays` and `meta` as the epoch's next number; durable when it returns.

        Raises Superseded (stop at once), WriteFailed (the previous version stands, try again later),
        ValueError for arrays or values that cannot be stored.
        """
        encoded = encode(arrays)
        key, digests = next_state_key(self.store, epoch), ArrayDigests(encoded)
        try:
            put = self.store.put_new(key, digests.passing(encoded.parts()))
        except CheckpointError:
            discard(self.store, key)
            raise
        return commit(self.store, epoch, meta, StateFile(key, put, digests.specs()))

    def attach(self, number: int, name: str, arrays: Arrays, meta: dict[str, Any]) -> None:
        """Add derived arrays to a version, create-only: the arrays, then `<name>.json`, which commits them.

        KeyExists when attached, Damaged without the version.
        """
        self.manifest(number)
        record_key = _record_key(number, name)
        data_name = f"{name}-{os.urandom(4).hex()}.safetensors"
        put = self.store.put_new(folder(number) + data_name, encode(arrays).parts())
        record = {"format": FORMAT, "number": number, "name": name, "file": data_name, "size": put.size}
        try:
            self.store.put_new(record_key, [seal(record | {"sha256_of_file": put.sha256, "meta": meta})])
        except (CheckpointError, ValueError):
            discard(self.store, folder(number) + data_name)
            raise

    def attached(
        self, number: int, name: str, destination: Destination = fresh
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Derived (arrays, meta) of a version, verified; None when not attached. Raises Damaged.

        destination: as in `load`.
        """
        record = self._attached_record(number, name)
        if record is None:
            return None
        key, size, sha256, meta = record
        return load_arrays(self.store, key, size, sha256, destination), meta

    def attached_meta(self, number: int, name: str) -> dict[str, Any] | None:
        """The meta of what is attached, without its arrays; None when not attached. Raises Damaged."""
        record = self._attached_record(number, name)
        return None if record is None else record[-1]

    def _attached_record(self, number: int, name: str) -> tuple[str, int, str, dict[str, Any]] | None:
        """The key, size, sha256 and meta of what is attached; None without `<name>.json`. Raises Damaged."""
        key = _record_key(number, name)
        try:
            _, at = open_sealed(self.store.get(key), key, (FORMAT,), "derived format")
        except KeyMissing:
            return None
        if at.integer("number") != number or at.text("name") != name:
            raise Damaged("mismatch", key, "belongs to another version or name")
        data_key = folder(number) + file_name(at, "file")
        found = data_key, at.integer("size"), digest(at, "sha256_of_file"), at.mapping("meta")
        at.nothing_left()
        return found


def _record_key(number: int, name: str) -> str:
    if check_name(name) == "manifest" or name.startswith("state-"):
        raise BadKey(repr(name), "is kept for the version itself")
    return f"{folder(number)}{name}.json"


GONE, LACKS = "gone", "lacks"
LOSS_MESSAGES: Mapping[str, str] = {
    GONE: "the checkpoint folder is gone: mount it again, or put a copy of it back",
    LACKS: "the checkpoint folder was emptied, or an older copy was put in its place: put a newer copy back, "
    "or let learn continue there on a new line; only a copy brings missing promotions back",
}
"""How a folder can be lost: what it is called, and the message that says so with its remedy."""
LOOK_EVERY_S = 2.0
"""Between two looks whether a version is still the one under its number."""


class FolderWatch:
    """Compares the version that a role works with with the folder. One thread.

    how: GONE or LACKS while the folder is lost, "" while it has the version or something newer. is_replaced:
    another version stands under its number. losses: times so far, by how; a version of another line that
    comes after counts too, since a reader that looks every few seconds may see no more than that.
    """

    def __init__(self, versions: VersionStore) -> None:
        self._versions = versions
        self._listed: Sequence[int] = ()
        self._look_at = 0.0
        self.mine: Manifest | None = None
        self._lacked_mine = False
        self.how, self.is_replaced = "", False
        self.losses: Counter[str] = Counter()

    def works_with(self, version: Manifest) -> None:
        """The role works with this version from now on."""
        before, self.mine = self.mine, version
        lines = set() if before is None else {before.line, version.line}
        if len(lines) == 2 and "" not in lines and not self._lacked_mine:
            self.losses[LACKS] += 1
        self.how, self.is_replaced, self._lacked_mine = "", False, False

    def look(self, versions: Sequence[int], now: float) -> None:
        """Look, at most every LOOK_EVERY_S while `versions`, those listed, stay the same. now: monotonic, in
        seconds.
        """
        mine, listed, self._listed = self.mine, self._listed, versions
        if mine is None or (versions == listed and now < self._look_at):
            return
        self._look_at = now + LOOK_EVERY_S
        if is_away(self._versions.store):
            self.is_replaced = False
            self._stands(GONE)
            return
        newest = max(versions, default=-1)
        lacks, self.is_replaced = mine.number not in versions and newest < mine.number, False
        try:
            there = None if lacks else self._versions.manifest(mine.number)
            self.is_replaced = there is not None and there.to_json() != mine.to_json()
        except Damaged as error:
            lacks = error.kind == "missing" and newest <= mine.number  # lists may be older; pruning spares it
        except CheckpointError:
            pass  # it was read before, and is not needed now
        self._stands(LACKS if lacks or self.is_replaced else "")

    def _stands(self, how: str) -> None:
        if how and not self.how:
            self.losses[how] += 1
        self._lacked_mine |= how == LACKS
        self.how = how
