"""Which numbers are taken, by what: reading manifests, telling versions from claims."""

from __future__ import annotations

from checkpoints.errors import BadKey, Damaged, KeyMissing
from checkpoints.keys import VERSIONS, folder, manifest_key, manifest_number, number_in_the_way
from checkpoints.manifest import Manifest
from checkpoints.store import BlobStore


def read_manifest(store: BlobStore, number: int) -> Manifest:
    """The manifest of `number`, checked. Raises Damaged (`missing` without one) or FutureFormat."""
    key = manifest_key(number)
    try:
        manifest = Manifest.from_json(store.get(key), key)
    except KeyMissing:
        raise _missing(store, number) from None
    except BadKey as error:
        raise Damaged("mismatch", error.place, error.problem) from error
    if manifest.number != number:
        raise Damaged("mismatch", key, f"says it is version {manifest.number}")
    return manifest


def numbers(store: BlobStore) -> list[int]:
    """Every number that is taken, ascending: versions, claims, and where a file or link is in the way."""
    committed, in_the_way = _taken(store)
    return sorted(committed | in_the_way)


def _taken(store: BlobStore) -> tuple[set[int], set[int]]:
    """Numbers with a manifest; numbers in whose folder's place something else stands."""
    keys = store.list(VERSIONS)
    committed = {n for n in map(manifest_number, keys) if n is not None}
    return committed, {n for n in map(number_in_the_way, keys) if n is not None}


def _missing(store: BlobStore, number: int) -> Damaged:
    if number in _taken(store)[1]:
        place, problem = folder(number).rstrip("/"), "is a file or a link, not the folder of a version"
        return Damaged("mismatch", place, problem, "put the folder back or remove it; no other is affected")
    return Damaged("missing", manifest_key(number), "there is no such version")


class Listing:
    """Versions and claims in `store`; remembers what each number is, since that never changes."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._claims: dict[int, bool] = {}

    def versions(self) -> list[int]:
        """Committed versions, ascending, also those whose manifest is damaged: loading one says why."""
        return [n for n, claim in self._kinds().items() if not claim]

    def claims(self) -> list[int]:
        """Numbers that writers took to fence off older ones, ascending."""
        return [n for n, claim in self._kinds().items() if claim]

    def candidates(self) -> list[int]:
        """Versions, and numbers in whose folder's place something else stands: once a version, maybe."""
        return sorted({*self.versions(), *_taken(self._store)[1]})

    def _kinds(self) -> dict[int, bool]:
        found = {}
        for number in sorted(_taken(self._store)[0]):
            if number not in self._claims:
                try:
                    self._claims[number] = read_manifest(self._store, number).kind == "claim"
                except Damaged:
                    found[number] = False
                    continue
            found[number] = self._claims[number]
        self._claims = {n: claim for n, claim in self._claims.items() if n in found}
        return found
