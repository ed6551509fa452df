"""One damaged or missing ledger entry silences nobody but itself, and is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkpoints import CheckpointError, Ledger, LocalStore, aliases
from checkpoints.manifest import seal, unseal


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A store with three ledger entries."""
    ledger = Ledger(LocalStore(tmp_path))
    for version in (1, 2, 3):
        ledger.append({"kind": "PROMOTE", "alias": "best", "version": version})
    return tmp_path


def passed_over(root: Path, after: int = 0) -> tuple[list[int], list[str]]:
    """Numbers of the entries that are read, and what is told of the others."""
    told: list[CheckpointError] = []
    entries = Ledger(LocalStore(root)).entries(after, told.append)
    assert [e.n for e in Ledger(LocalStore(root)).entries(after)] == [e.n for e in entries]
    return [e.n for e in entries], [str(error) for error in told]


def test_an_altered_entry_is_passed_over_and_told(three: Path) -> None:
    path = three / "ledger" / "0000000002.json"
    whole = bytearray(path.read_bytes())
    for at in range(len(whole)):
        whole[at] ^= 1
        path.write_bytes(whole)
        numbers, told = passed_over(three)
        assert numbers == [1, 3]
        assert len(told) == 1
        assert "ledger/0000000002.json" in told[0]
        whole[at] ^= 1
    assert "all other entries do" in told[0]
    path.write_bytes(whole)
    assert passed_over(three) == ([1, 2, 3], [])


@pytest.mark.parametrize("what", ["moved", "link", "folder", "gone", "future"])
def test_whatever_is_no_entry_is_passed_over_and_told(three: Path, what: str) -> None:
    path = three / "ledger" / "0000000002.json"
    data = path.read_bytes()
    path.unlink()
    if what == "moved":
        path.write_bytes((three / "ledger" / "0000000001.json").read_bytes())
    elif what == "link":
        path.symlink_to(three / "ledger" / "0000000001.json")
    elif what == "folder":
        path.mkdir()
    elif what == "future":
        path.write_bytes(seal(unseal(data, "test") | {"format": 2}))
    numbers, told = passed_over(three)
    assert numbers == [1, 3]
    assert len(told) == 1
    assert "ledger/0000000002.json" in told[0]
    assert ("upgrade" in told[0]) == (what == "future")
    assert passed_over(three, after=2) == ([3], [])
    assert aliases(Ledger(LocalStore(three)).entries()) == {"best": 3}


def test_entries_missing_in_a_row_are_one_report(three: Path) -> None:
    for n in (1, 2):
        (three / "ledger" / f"{n:010d}.json").unlink()
    numbers, told = passed_over(three)
    assert numbers == [3]
    assert len(told) == 1
    assert re.search(r"0000000001\.json.* up to ledger/0000000002\.json", told[0])


def test_each_damage_is_told_once_and_a_damaged_last_entry_keeps_its_number(three: Path) -> None:
    (three / "ledger" / "0000000003.json").write_bytes(b"torn")
    ledger, told = Ledger(LocalStore(three)), []
    for _ in range(3):
        assert [e.n for e in ledger.entries(report=told.append)] == [1, 2]
    assert len(told) == 1
    assert ledger.append({"kind": "STOP"}).n == 4
    assert [e.n for e in ledger.entries(after=2, report=told.append)] == [4]
    assert len(told) == 1


def test_an_entry_that_a_listing_missed_is_read_all_the_same(three: Path) -> None:
    class Hasty(LocalStore):
        """Its first listing shows an entry and not the one before, as one beside an append may."""

        hasty = True

        def list(self, prefix: str = "") -> list[str]:
            found = super().list(prefix)
            if self.hasty:
                found.remove("ledger/0000000002.json")
            self.hasty = False
            return found

    told: list[CheckpointError] = []
    assert [e.n for e in Ledger(Hasty(three)).entries(report=told.append)] == [1, 2, 3]
    assert told == []
