"""How many requests a bucket is asked: few, and as many for a thousand versions as for three."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from checkpoints import Ledger, Unreachable, VersionMeta, VersionStore, fold_history, prune
from checkpoints.commit import READS_AT_ONCE, check_writer
from checkpoints.retention import KEEP_CLAIMS
from checkpoints.store import folder, manifest_key
from tests.harness.memory_store import MemoryStore
from tests.harness.s3_faults import REFUSED, Asked, Fault, S3Proxy
from tests.harness.s3_server import S3Server

ARRAYS = {"W": np.arange(12, dtype=np.float32).reshape(3, 4)}
FEW, MANY = 4, 40


class Counted:
    """A place in the bucket whose requests are counted."""

    def __init__(self, server: S3Server, proxy: S3Proxy, prefix: str) -> None:
        self._server, self._proxy, self._prefix = server, proxy, prefix

    def fresh(self) -> VersionStore:
        """As a process that has just started has it: nothing is remembered."""
        return VersionStore(self._server.store(self._prefix, self._proxy.url))

    def write(self, count: int) -> None:
        """So many versions, by one writer."""
        versions = self.fresh()
        epoch = versions.claim()
        for _ in range(count):
            versions.publish(epoch, ARRAYS, VersionMeta())

    def of(self, act: Callable[[], object]) -> list[Asked]:
        """The requests of one call."""
        self._proxy.asked.clear()
        act()
        return list(self._proxy.asked)


@pytest.fixture
def place(s3: S3Server, proxy: S3Proxy, prefix: str) -> Counted:
    return Counted(s3, proxy, prefix)


def reads(asked: list[Asked]) -> list[str]:
    """The manifests that were read."""
    return [one.path for one in asked if one.method == "GET" and one.path.endswith("manifest.json")]


def test_a_start_reads_the_newest_manifests_alone(place: Counted) -> None:
    def start() -> None:
        versions = place.fresh()
        assert versions.newest_manifest() is not None
        versions.claim()
        assert versions.newest_valid() is not None

    place.write(FEW)
    few = place.of(start)
    place.write(MANY)
    many = place.of(start)
    assert len(many) == len(few) <= 15
    assert sum(one.lists for one in many) <= 4
    assert len(reads(many)) <= 4


def test_claims_above_the_newest_version_are_read_once(place: Counted) -> None:
    place.write(FEW)
    for _ in range(3):
        place.fresh().claim()
    versions = place.fresh()
    assert len(reads(place.of(versions.newest_manifest))) == 4
    assert len(reads(place.of(versions.newest_manifest))) == 1


def test_a_version_is_durable_after_four_requests(place: Counted) -> None:
    place.write(MANY)
    versions = place.fresh()
    epoch = versions.claim()
    asked = place.of(lambda: versions.publish(epoch, ARRAYS, VersionMeta()))
    assert [one.method for one in asked] == ["GET", "HEAD", "PUT", "PUT"]


def test_pruning_one_version_costs_the_same_however_many_stay(place: Counted) -> None:
    def pruned(keep: int) -> int:
        place.write(keep + 1)  # version 0 stays besides
        versions = place.fresh()
        ledger, epoch = Ledger(versions.store), versions.claim()

        def after_a_version() -> None:
            prune(
                versions,
                lambda: {e.n for e in ledger.whole()},
                keep,
                lambda: check_writer(versions.store, epoch),
            )
            fold_history(versions.store, list, lambda: None)

        after_a_version()  # what it does not know yet is read once
        versions.publish(epoch, ARRAYS, VersionMeta())
        return len(place.of(after_a_version))

    few, many = pruned(FEW), pruned(MANY)
    assert many == few <= 32


def test_what_every_manifest_says_is_read_once(place: Counted) -> None:
    place.write(MANY)
    versions = place.fresh()
    asked = place.of(lambda: (versions.versions(), versions.versions(), versions.listing.candidates()))
    assert len(reads(asked)) == len(set(reads(asked))) == MANY
    assert len(asked) - MANY == 6


class SlowStore(MemoryStore):
    """A store elsewhere: an answer comes only once `together` questions are on their way."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self.meeting = threading.Barrier(together)
        self.slow = False

    def exists(self, key: str) -> bool:
        return key in self.list(key)

    def get(self, key: str) -> bytes:
        if self.slow:
            self.meeting.wait(100.0)
        return super().get(key)


def test_many_manifests_are_asked_for_at_the_same_time() -> None:
    store = SlowStore(READS_AT_ONCE)
    versions = VersionStore(store)
    epoch = versions.claim()
    for _ in range(2 * READS_AT_ONCE):
        versions.publish(epoch, ARRAYS, VersionMeta())
    store.slow = True
    assert VersionStore(store).versions() == list(range(2 * READS_AT_ONCE))


def test_an_older_version_is_not_the_newest_because_one_cannot_be_reached(
    place: Counted, proxy: S3Proxy
) -> None:
    place.write(FEW)
    newest = manifest_key(FEW - 1)
    proxy.add(Fault(lambda asked: asked.path.endswith(newest), times=10**6, answer=REFUSED))
    for ask in (place.fresh().newest_manifest, place.fresh().newest_valid, place.fresh().claim):
        with pytest.raises(Unreachable):
            ask()


def test_what_a_dead_writer_left_goes_with_the_next_claim_or_with_the_claim_it_lies_under(
    place: Counted,
) -> None:
    place.write(FEW)
    store = place.fresh().store
    beside, alone = (f"{folder(number)}state-0-0123abcd.safetensors" for number in (1, FEW))
    claimed = place.fresh().claim().number
    assert claimed == FEW
    for key in (beside, alone):
        store.put_new(key, [b"left"])
    versions = place.fresh()
    epoch = versions.claim()
    assert not store.exists(beside)
    assert store.exists(alone), "whether it is a version's own would take a request for each version"
    for _ in range(KEEP_CLAIMS):
        epoch = versions.claim()
    prune(versions, set, 20, lambda: check_writer(store, epoch))
    assert not store.exists(alone)
    assert versions.versions() == list(range(FEW))
