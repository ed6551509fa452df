"""What is pruned, and what is left of it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from checkpoints import (
    Damaged,
    Epoch,
    Ledger,
    LocalStore,
    Superseded,
    VersionStore,
    aliases,
    history,
    plan,
    prune,
)
from checkpoints.commit import check_writer
from checkpoints.retention import KEEP_CLAIMS, plan_claims
from tests.harness.memory_store import MemoryStore

from .samples import meta, state


def nobody_else() -> None:
    """The fence of the only writer."""


@pytest.mark.parametrize(
    ("versions", "protected", "keep", "expected"),
    [
        ([], [], 3, []),
        ([0, 1, 2], [], 3, []),
        ([0, 1, 2, 3], [], 2, [1]),
        ([5, 3, 0, 1], [], 1, [1]),
        ([0, 1, 2, 3, 4], [], 3, [1]),
        ([0, 1, 2, 3, 4, 5], [1, 2], 2, [3]),
        ([4, 5, 6], [], 0, [4]),
        ([0], [], 0, []),
        ([0, 1, 2, 3], [99], 1, [1]),
    ],
)
def test_retention_keeps_version_0_the_newest_and_the_protected(
    versions: list[int], protected: list[int], keep: int, expected: list[int]
) -> None:
    assert plan(versions, protected, keep) == expected


def test_only_the_newest_claims_are_kept() -> None:
    assert plan_claims(range(KEEP_CLAIMS)) == []
    assert plan_claims(range(KEEP_CLAIMS + 2)) == [0, 1]


def test_pruning_leaves_a_line_of_history_and_nothing_else(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    versions = VersionStore(store)
    epoch = versions.claim()
    written = [versions.publish(epoch, state(n), meta(counters={"updated": n})) for n in range(6)]
    versions.attach(1, "serving", state(), {})
    assert prune(versions, lambda: [3], 1, nobody_else) == [1, 2]
    assert versions.versions() == [0, 3, 4, 5]
    assert store.list("versions/0000000001/") + store.list("versions/0000000002/") == []
    assert not (tmp_path / "versions" / "0000000001").exists()
    assert [(line["number"], line["counters"]) for line in history(store)] == [
        (1, {"updated": 1}),
        (2, {"updated": 2}),
    ]
    assert versions.publish(epoch, state(9), meta()).number == written[-1].number + 1
    for _ in range(KEEP_CLAIMS + 5):
        versions.claim()
    prune(versions, list, 2, nobody_else)
    assert len(versions.listing.claims()) == KEEP_CLAIMS


def test_history_leaves_out_torn_and_repeated_lines() -> None:
    store = MemoryStore()
    for line in (
        b'{"number": 2, "a": 1}',
        b'{"number": 1',
        b'{"number": 2, "a": 2}',
        b"[]",
        b'{"number": 1, "a": 3}',
    ):
        store.append_line("history.jsonl", line)
    assert history(store) == [{"number": 1, "a": 3}, {"number": 2, "a": 1}]
    assert history(MemoryStore()) == []


def test_a_damaged_version_can_be_pruned(tmp_path: Path) -> None:
    versions = VersionStore(LocalStore(tmp_path))
    epoch = versions.claim()
    for n in range(4):
        versions.publish(epoch, state(n), meta())
    (tmp_path / "versions" / "0000000001" / "manifest.json").write_bytes(b"rubbish")
    assert prune(versions, list, 2, nobody_else) == [1]
    assert history(versions.store)[0]["number"] == 1
    assert "damaged" in history(versions.store)[0]


def test_a_writer_that_slept_through_the_pruning_of_claims_is_still_fenced(tmp_path: Path) -> None:
    versions = VersionStore(LocalStore(tmp_path))
    sleeper = versions.claim()
    versions.publish(sleeper, state(), meta())
    for number in range(KEEP_CLAIMS + 1):
        epoch = versions.claim()
        versions.publish(epoch, state(number), meta())
    prune(versions, list, 2, nobody_else)
    assert sleeper.next_number not in versions.listing.claims() + versions.versions()
    before = versions.store.list()
    with pytest.raises(Superseded):
        versions.publish(sleeper, state(), meta())
    assert versions.store.list() == before


def five_versions(tmp_path: Path) -> tuple[VersionStore, Epoch]:
    versions = VersionStore(LocalStore(tmp_path))
    epoch = versions.claim()
    for n in range(5):
        versions.publish(epoch, state(n), meta())
    return versions, epoch


def test_a_verdict_that_comes_while_pruning_still_protects(tmp_path: Path) -> None:
    versions, _ = five_versions(tmp_path)
    ledger = Ledger(versions.store)

    def promote_2() -> None:
        ledger.append({"kind": "PROMOTE", "alias": "best", "version": 2})

    manifest = tmp_path / "versions" / "0000000002" / "manifest.json"
    before = manifest.stat().st_mtime_ns
    assert prune(versions, lambda: aliases(ledger.whole()).values(), 2, promote_2) == [1]
    assert versions.versions() == [0, 2, 3, 4]
    assert manifest.stat().st_mtime_ns == before, "it was away for a moment"


@pytest.mark.parametrize("readable", [True, False])
def test_a_name_given_after_the_last_look_gives_the_version_back(tmp_path: Path, readable: bool) -> None:
    versions, _ = five_versions(tmp_path)

    def protected() -> list[int]:
        if 1 in versions.versions():
            return []
        if not readable:
            raise Damaged("malformed", "ledger/1", "is none")
        return [1]

    with nullcontext() if readable else pytest.raises(Damaged):
        assert prune(versions, protected, 2, nobody_else) == [2]
    assert versions.versions() == ([0, 1, 3, 4] if readable else [0, 1, 2, 3, 4])
    assert versions.load(1).arrays.keys() == state(1).keys()


def test_a_writer_that_was_succeeded_deletes_nothing_more(tmp_path: Path) -> None:
    versions, epoch = five_versions(tmp_path)
    looks = 0

    def succeeded_before_the_second() -> None:
        nonlocal looks
        looks += 1
        if looks == 4:  # two for each version: before its line of history, and before its deletion
            versions.claim()
        check_writer(versions.store, epoch)

    with pytest.raises(Superseded):
        prune(versions, list, 2, succeeded_before_the_second)
    assert versions.versions() == [0, 2, 3, 4]


def test_nothing_goes_while_a_verdict_cannot_be_read(tmp_path: Path) -> None:
    versions, _ = five_versions(tmp_path)
    ledger = Ledger(versions.store)
    ledger.append({"kind": "PROMOTE", "alias": "best", "version": 2})
    ledger.append({"kind": "KEEP", "version": 4})
    (tmp_path / "ledger" / "0000000001.json").write_bytes(b"rubbish")
    for _ in range(2):  # the reader that was told once must not forget it
        with pytest.raises(Damaged):
            prune(versions, lambda: aliases(Ledger(versions.store).whole()).values(), 2, nobody_else)
    assert versions.versions() == [0, 1, 2, 3, 4]


def test_the_own_number_of_a_put_in_flight_is_nobody_elses(tmp_path: Path) -> None:
    versions, epoch = five_versions(tmp_path)
    epoch.next_number -= 1  # as between the manifest's link and the count
    check_writer(versions.store, epoch)
    versions.claim()
    with pytest.raises(Superseded):
        check_writer(versions.store, epoch)
