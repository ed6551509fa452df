"""What gc deletes, what it keeps and why, and that it never takes what somebody needs."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from checkpoints import Damaged, Ledger, LedgerEntry, LocalStore, VersionStore, aliases, history
from daemon.exits import UserError
from daemon.models.actions import gc, reasons
from daemon.models.decide import MoveRefused

from .moves import pin, promote
from .shelf import Shelf


def names(said: list[tuple[str, str, int]]) -> list[LedgerEntry]:
    return [LedgerEntry(n=n, kind=k, alias=a, version=v) for n, (k, a, v) in enumerate(said, 1)]


@pytest.mark.parametrize(
    ("versions", "said", "resumed", "keep", "expected"),
    [
        ([], [], [], 3, {}),
        ([0, 1, 2, 3], [], [3, 2], 2, {0: ("version 0",), 2: ("newest",), 3: ("newest",)}),
        ([0, 1], [], [], 0, {0: ("version 0", "newest"), 1: ("newest",)}),
        (
            [0, 1, 2, 3, 4],
            [("PROMOTE", "best", 1), ("PROMOTE", "stable", 2)],
            [],
            2,
            {
                0: ("version 0",),
                1: ("best",),
                2: ("stable",),
                3: ("newest",),
                4: ("newest",),
            },
        ),
        (
            [1, 2, 3, 4, 5],
            [("PROMOTE", "stable", 1), ("PROMOTE", "stable", 2)],
            [3, 2],
            2,
            {
                1: ("one step back",),
                2: ("stable", "a learner continues from it"),
                3: ("a learner continues from it",),
                4: ("newest",),
                5: ("newest",),
            },
        ),
    ],
)
def test_why_versions_stay(
    versions: list[int],
    said: list[tuple[str, str, int]],
    resumed: list[int],
    keep: int,
    expected: dict[int, tuple[str, ...]],
) -> None:
    assert reasons(versions, names(said), resumed, keep) == expected


def test_gc_deletes_what_the_dry_run_showed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, count=8)
    promote(shelf.versions, shelf.ledger, 2, by="ann")
    promote(shelf.versions, shelf.ledger, 3, by="ann")
    pin(shelf.versions, shelf.ledger, "monday", 1, by="ann")
    shown = gc(shelf.versions, shelf.ledger, 2, dry_run=True)
    assert shelf.versions.versions() == list(range(8))
    done = gc(shelf.versions, shelf.ledger, 2)
    assert (shown.gone, shown.size, shown.kept) == (done.gone, done.size, done.kept)
    assert done.gone == (4, 5)
    assert done.size > 2 * 36
    assert shelf.versions.versions() == sorted(done.kept) == [0, 1, 2, 3, 6, 7]
    assert [line["number"] for line in history(shelf.versions.store)] == [4, 5]
    assert gc(shelf.versions, shelf.ledger, 2).gone == ()


def test_the_newest_that_load_stay_for_the_learner(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, count=7)
    for number in (4, 5, 6):
        shelf.spoil_state(number)
    assert gc(shelf.versions, shelf.ledger, 2).gone == (1, 4)
    assert shelf.versions.versions() == [0, 2, 3, 5, 6]
    newest = shelf.versions.newest_valid()
    assert newest is not None
    assert newest.manifest.number == 3


def test_nothing_goes_while_an_entry_cannot_be_read(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, count=6)
    promote(shelf.versions, shelf.ledger, 1, by="ann")
    shelf.spoil_entry(1)
    for dry_run in (True, False):
        with pytest.raises(UserError, match=r"0000000001\.json") as caught:
            gc(shelf.versions, shelf.ledger, 2, dry_run=dry_run)
        assert caught.value.remedy
    assert shelf.versions.versions() == list(range(6))


def _collect(root: Path) -> tuple[int, ...]:
    return gc(VersionStore(LocalStore(root)), Ledger(LocalStore(root)), 2).gone


def test_two_at_once_delete_the_same_and_lose_no_history(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, count=40)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        gone = pool.map(_collect, [tmp_path, tmp_path], chunksize=1)
    assert set().union(*gone) == set(range(1, 38))
    assert shelf.versions.versions() == [0, 38, 39]
    lines = history(shelf.versions.store)
    assert [line["number"] for line in lines] == list(range(1, 38))
    assert all("schedule" in line for line in lines), "what a replay needs"


class Late(LocalStore):
    """Right before the manifest of version 1 is deleted, or right after, somebody promotes it."""

    when = "before"

    def delete(self, key: str, durable: bool = True) -> None:
        """As everywhere."""
        late = key.endswith("0000000001/manifest.json") and self.when
        if late == "before":
            self.when = ""
            promote(VersionStore(LocalStore(self.root)), Ledger(LocalStore(self.root)), 1, by="ann")
        super().delete(key)
        if late == "after":
            self.when = ""
            with pytest.raises(MoveRefused):
                promote(VersionStore(LocalStore(self.root)), Ledger(LocalStore(self.root)), 1, by="ann")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_promotion_in_the_midst_of_a_deletion_holds_or_is_refused(tmp_path: Path, when: str) -> None:
    shelf, store = Shelf(tmp_path, count=6), Late(tmp_path)
    store.when = when
    gone = gc(VersionStore(store), Ledger(store), 2).gone
    stable = aliases(shelf.ledger.entries()).get("stable")
    assert (gone, stable) == (((2, 3), 1) if when == "before" else ((1, 2, 3), None))
    if stable is not None:
        shelf.versions.load(stable)


class Torn(LocalStore):
    """While the first version is being deleted, an entry comes that cannot be read."""

    def append_line(self, key: str, line: bytes) -> None:
        """As everywhere."""
        super().append_line(key, line)
        (self.root / "ledger" / "0000000002.json").write_bytes(b"half an ent")


def test_an_entry_that_cannot_be_read_ends_the_deletion_under_way(tmp_path: Path) -> None:
    shelf, store = Shelf(tmp_path, count=6), Torn(tmp_path)
    promote(shelf.versions, shelf.ledger, 2, by="ann")
    with pytest.raises(Damaged, match=r"0000000002\.json"):
        gc(VersionStore(store), Ledger(store), 2)
    assert shelf.versions.versions() == list(range(6))
