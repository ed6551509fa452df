"""The ledger keeps every verdict in one order; aliases are a fold over it; races have one winner."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoints import (
    Ledger,
    LedgerEntry,
    LocalStore,
    Superseded,
    VersionStore,
    aliases,
    resolve,
)
from tests.harness.memory_store import MemoryStore

from .samples import meta, same, state


def entry(n: int, kind: str, alias: str | None, version: int | None) -> LedgerEntry:
    return LedgerEntry(n=n, kind=kind, alias=alias, version=version)


def test_entries_come_back_in_order_with_all_they_say() -> None:
    ledger = Ledger(store := MemoryStore())
    first = ledger.append(
        {"kind": "KEEP", "version": 3, "by": "validate", "reason": "gate", "measures": {"map": 0.5}}
    )
    second = ledger.append({"kind": "PROMOTE", "version": 4, "alias": "best"})
    assert (first.n, second.n) == (1, 2)
    assert Ledger(store).entries() == [first, second]
    assert Ledger(store).entries(after=1) == [second]
    assert first.measures == {"map": 0.5}
    assert first.at.endswith("+00:00")


def test_unknown_kinds_and_fields_are_refused() -> None:
    ledger = Ledger(MemoryStore())
    with pytest.raises(ValueError, match="CHEER"):
        ledger.append({"kind": "CHEER"})
    with pytest.raises(ValueError, match="mood"):
        ledger.append({"kind": "KEEP", "mood": "good"})
    assert ledger.entries() == []


def _append(root: Path, by: str, count: int) -> list[int]:
    ledger = Ledger(LocalStore(root))
    return [ledger.append({"kind": "KEEP", "version": i, "by": by}).n for i in range(count)]


def _claim(root: Path, count: int) -> list[int]:
    versions = VersionStore(LocalStore(root))
    return [versions.claim().number for _ in range(count)]


def _publish_first(root: Path, seed: int) -> int | None:
    versions = VersionStore(LocalStore(root))
    try:
        versions.publish(versions.claim(), state(seed), meta())
    except Superseded:
        return None
    return seed


def _in_processes(call, arguments):  # type: ignore[no-untyped-def]
    with multiprocessing.get_context("spawn").Pool(len(arguments)) as pool:
        return pool.starmap(call, arguments, chunksize=1)


class OvertakenStore(MemoryStore):
    """Right after each of the next listings somebody else acts: the moment in which a race is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.rivals: list[Callable[[], object]] = []

    def list(self, prefix: str = "") -> list[str]:
        found = super().list(prefix)
        if self.rivals:
            self.rivals.pop()()
        return found


def test_the_loser_of_a_race_for_a_ledger_number_takes_the_next() -> None:
    store = OvertakenStore()
    rival = Ledger(store)
    store.rivals = [lambda: rival.append({"kind": "KEEP", "by": "rival"})]
    assert Ledger(store).append({"kind": "STOP", "by": "loser"}).n == 2
    assert [entry.by for entry in rival.entries()] == ["rival", "loser"]


def test_the_loser_of_a_race_for_a_claim_takes_the_next() -> None:
    store = OvertakenStore()
    versions = VersionStore(store)
    first = versions.claim()
    versions.publish(first, state(), meta())
    store.rivals = [lambda: versions.publish(first, state(1), meta(parent=0))]
    loser = versions.claim()
    assert (loser.number, loser.next_number) == (2, 3)
    assert versions.versions() == [0, 1]


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    numbers = _in_processes(_append, [(tmp_path, name, 20) for name in "abc"])
    assert sorted(n for of_one in numbers for n in of_one) == list(range(1, 61))
    entries = Ledger(LocalStore(tmp_path)).entries()
    assert [e.n for e in entries] == list(range(1, 61))
    for name, own in zip("abc", numbers, strict=True):
        assert [(e.n, e.version) for e in entries if e.by == name] == list(zip(own, range(20), strict=True))


def test_processes_that_claim_at_once_win_a_number_each(tmp_path: Path) -> None:
    versions = VersionStore(LocalStore(tmp_path))
    versions.publish(versions.claim(), state(), meta())
    won = _in_processes(_claim, [(tmp_path, 10), (tmp_path, 10)])
    assert sorted(won[0] + won[1]) == list(range(1, 21))
    assert versions.listing.claims() == list(range(1, 21))
    assert versions.versions() == [0]


def test_processes_that_start_an_empty_store_at_once_write_one_version_0(tmp_path: Path) -> None:
    won = [
        seed for seed in _in_processes(_publish_first, [(tmp_path, 1), (tmp_path, 2), (tmp_path, 3)]) if seed
    ]
    versions = VersionStore(LocalStore(tmp_path))
    assert won
    assert same(versions.load(0).arrays, state(won[0])) or len(won) > 1
    assert versions.versions()[0] == 0
    assert any(same(versions.load(0).arrays, state(seed)) for seed in won)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], {}),
        ([("PROMOTE", "best", 2)], {"best": 2}),
        (
            [("PROMOTE", "best", 2), ("PROMOTE", "best", 5), ("PROMOTE", "stable", 2)],
            {"best": 5, "stable": 2},
        ),
        ([("PROMOTE", "best", 5), ("ROLLBACK", "best", 2)], {"best": 2}),
        ([("PROMOTE", "best", 5), ("KEEP", "best", 7), ("STOP", None, 5), ("RESUME", None, 5)], {"best": 5}),
        ([("PROMOTE", "pin", 5), ("ROLLBACK", "pin", None)], {}),
        ([("PROMOTE", None, 5)], {}),
    ],
)
def test_aliases_are_the_last_move(
    entries: list[tuple[str, str | None, int | None]], expected: dict[str, int]
) -> None:
    written = [entry(n, *rest) for n, rest in enumerate(entries, 1)]
    random.Random(0).shuffle(written)
    assert aliases(written) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("latest", 9), ("best", 4), ("4", 4), ("5", None), ("gone", None), ("nobody", None)],
)
def test_names_resolve_to_versions_that_exist(name: str, expected: int | None) -> None:
    entries = [entry(1, "PROMOTE", "best", 4), entry(2, "PROMOTE", "gone", 5)]
    assert resolve(name, [0, 4, 9], entries) == expected
    assert resolve("latest", [], []) is None
