"""Which numbers are taken, by what: reading manifests, telling versions from claims."""

from __future__ import annotations

from checkpoints.errors import BadKey, Damaged, KeyMissing
from checkpoints.keys import VERSIONS, manifest_key, manifest_number
from checkpoints.manifest import Manifest
from checkpoints.store import BlobStore


def read_manifest(store: BlobStore, number: int) -> Manifest:
    """The manifest of `number`, checked. Raises Damaged (`missing` without one) or FutureFormat."""
    key = manifest_key(number)
    try:
        manifest = Manifest.from_json(store.get(key), key)
    except KeyMissing:
        raise Damaged("missing", key, "there is no such version") from None
    except BadKey as error:
        raise Damaged("mismatch", error.place, error.problem) from error
    if manifest.number != number:
        raise Damaged("mismatch", key, f"says it is version {manifest.number}")
    return manifest


def numbers(store: BlobStore) -> list[int]:
    """Every committed number, versions and claims, ascending."""
    return sorted(n for n in map(manifest_number, store.list(VERSIONS)) if n is not None)


class Listing:
    """Versions and claims in `store`; remembers what each number is, since that never changes."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._claims: dict[int, bool] = {}

    def versions(self) -> list[int]:
        """Committed versions, ascending, also those whose manifest is damaged: loading one says why."""
        return [n for n, claim in self._kinds().items() if not claim]

    def claims(self) -> list[int]:
        """Numbers taken by claims, ascending."""
        return [n for n, claim in self._kinds().items() if claim]

    def _kinds(self) -> dict[int, bool]:
        found = {}
        for number in numbers(self._store):
            if number not in self._claims:
                try:
                    self._claims[number] = read_manifest(self._store, number).kind == "claim"
                except Damaged:
                    found[number] = False
                    continue
            found[number] = self._claims[number]
        self._claims = {n: claim for n, claim in self._claims.items() if n in found}
        return found
