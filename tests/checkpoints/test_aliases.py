"""What names mean, as tables: stable's fallbacks, targets that are gone, entries that cannot be read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from checkpoints import Ledger, LedgerEntry, LocalStore, meaning, names, protected, resolve
from checkpoints.entries import before
from checkpoints.store import KeyExists
from tests.harness.memory_store import MemoryStore

Said = tuple[str, str | None, int | None]
P, R = "PROMOTE", "ROLLBACK"
HERE = [0, 2, 4, 5, 7, 9]


def ledger_of(said: list[Said]) -> list[LedgerEntry]:
    """Entries from 1 on, in any order."""
    entries = [
        LedgerEntry(n=n, kind=kind, alias=alias, version=version)
        for n, (kind, alias, version) in enumerate(said, 1)
    ]
    random.Random(0).shuffle(entries)
    return entries


@pytest.mark.parametrize(
    ("said", "expected", "through"),
    [
        ([], 0, "stable"),
        ([(P, "best", 4)], 4, "best"),
        ([(P, "best", 4), (P, "best", 7)], 7, "best"),
        ([(P, "stable", 5)], 5, "stable"),
        ([(P, "stable", 5), (P, "best", 7)], 5, "stable"),
        ([(P, "stable", 5), (R, "stable", 2), (P, "best", 7)], 2, "stable"),
        ([(P, "stable", 5), (R, "stable", None)], 0, "stable"),
        ([(P, "stable", 5), (R, "stable", None), (P, "best", 7)], 7, "best"),
        ([(P, "canary", 5)], 0, "stable"),
        ([("KEEP", "stable", 5), ("STOP", None, 5)], 0, "stable"),
        # What was meant is not there: no other version takes its place.
        ([(P, "stable", 3), (P, "best", 7)], None, "stable"),
        ([(P, "best", 3)], None, "best"),
    ],
)
def test_stable_is_what_people_promoted_else_best_else_version_0(
    said: list[Said], expected: int | None, through: str
) -> None:
    found = meaning("stable", HERE, ledger_of(said))
    assert (found.version, found.through) == (expected, through)
    assert resolve("stable", HERE, ledger_of(said)) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], {"stable": 0, "own": 0}),
        ([(P, "best", 4)], {"best": 4, "stable": 4, "own": 0}),
        (
            [(P, "best", 4), (P, "stable", 5), (P, "monday", 2)],
            {"best": 4, "stable": 5, "monday": 2, "own": 0},
        ),
        ([(P, "best", 4), (P, "stable", 5), (R, "stable", None)], {"best": 4, "stable": 4, "own": 0}),
        ([(P, "own", 4)], {"stable": 0, "own": 4}),
    ],
)
def test_every_name_with_what_it_is_answered_with(said: list[Said], expected: dict[str, int]) -> None:
    assert names(ledger_of(said)) == expected


@pytest.mark.parametrize(
    ("said", "newest"),
    [
        ([], 0),
        ([("KEEP", None, 5)], 0),
        ([(P, "best", 4), (P, "canary", 5)], 1),
        ([(P, "stable", 5), (P, "best", 4)], 1),
        ([(P, "best", 4), (P, "stable", 5), (R, "stable", None)], 3),
        ([(P, "stable", 5), (R, "stable", None)], 2),
        ([(P, "best", 4), (P, "stable", 5), (R, "stable", None), (P, "best", 7)], 4),
    ],
)
def test_a_meaning_names_the_newest_word_on_it(said: list[Said], newest: int) -> None:
    assert meaning("stable", HERE, ledger_of(said)).said == newest


@pytest.mark.parametrize(
    ("name", "expected"),
    [("latest", 9), ("best", 4), ("7", 7), ("3", None), ("keep-me", 5), ("Stable", None), ("12+3400", None)],
)
def test_other_names(name: str, expected: int | None) -> None:
    assert resolve(name, HERE, ledger_of([(P, "best", 4), (P, "keep-me", 5)])) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], 0),
        ([(P, "best", 4), (P, "stable", 5)], 0),
        ([(P, "own", 4)], 4),
        ([(P, "own", 4), (R, "own", None)], 0),
    ],
)
def test_own_is_version_0_unless_it_was_given_before_it_was_a_name(said: list[Said], expected: int) -> None:
    assert resolve("own", HERE, ledger_of(said)) == expected
    assert meaning("own", HERE, ledger_of(said), unreadable=[9]).doubts == (
        (9,) if said[:1] == [(P, "own", 4)] else ()
    )


def test_nothing_means_anything_in_an_empty_store() -> None:
    assert [resolve(name, [], []) for name in ("latest", "best", "stable", "own", "0")] == [None] * 5


@pytest.mark.parametrize(
    ("said", "lost", "expected", "doubts"),
    [
        # A lost entry after the last readable intention: that stands, and is in doubt.
        ([(P, "stable", 5), (P, "stable", 7)], [2], 5, (2,)),
        ([(P, "stable", 5), (P, "best", 7), (P, "stable", 9)], [3], 5, (3,)),
        # One before it is settled by it.
        ([(P, "stable", 5), (P, "stable", 7)], [1], 7, ()),
        # With none readable, any lost one may have promoted it.
        ([(P, "stable", 5), (P, "best", 7)], [1], 7, (1,)),
        ([(P, "stable", 5)], [1], 0, (1,)),
        ([(P, "stable", 5), ("KEEP", None, 7), (P, "stable", 9)], [2, 3], 5, (2, 3)),
    ],
)
def test_lost_entries_leave_the_last_readable_intention_and_a_doubt(
    said: list[Said], lost: list[int], expected: int, doubts: tuple[int, ...]
) -> None:
    readable = [entry for entry in ledger_of(said) if entry.n not in lost]
    found = meaning("stable", HERE, readable, unreadable=lost)
    assert (found.version, found.doubts) == (expected, doubts)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], None),
        ([(P, "stable", 5)], 0),
        ([(P, "best", 4), (P, "stable", 5)], 4),
        ([(P, "best", 4), (P, "stable", 5), (P, "best", 7)], 4),
        ([(P, "stable", 5), (P, "stable", 7)], 5),
        ([(P, "stable", 5), (P, "stable", 7), (P, "stable", 7)], 5),
        # Two rollbacks in a row go back by two.
        ([(P, "stable", 2), (P, "stable", 5), (P, "stable", 7), (R, "stable", 5)], 2),
        ([(P, "stable", 2), (P, "stable", 5), (R, "stable", 2)], 0),
        ([(P, "stable", 5), (R, "stable", 0)], None),
        # A rollback to somewhere else replaces the top.
        ([(P, "stable", 5), (P, "stable", 7), (R, "stable", 4)], 5),
        # Taken away: what it was before is where one goes back to.
        ([(P, "stable", 5), (R, "stable", None)], 5),
        ([(P, "stable", 5), (R, "stable", None), (P, "stable", 7)], 5),
        ([(P, "best", 5), (P, "stable", 7), (R, "stable", None), (P, "stable", 9), (R, "stable", 7)], 5),
    ],
)
def test_where_a_rollback_goes(said: list[Said], expected: int | None) -> None:
    assert before("stable", ledger_of(said)) == expected


def test_other_names_have_nothing_below_their_first_promotion() -> None:
    assert before("canary", ledger_of([(P, "best", 4), (P, "canary", 5)])) is None
    assert before("canary", ledger_of([(P, "canary", 4), (P, "canary", 5)])) == 4


def test_retention_keeps_targets_and_one_step_back() -> None:
    said: list[Said] = [(P, "best", 2), (P, "stable", 4), (P, "best", 5), (P, "best", 7), (P, "gone", 9)]
    assert protected(ledger_of([*said, (R, "gone", None)])) == {2, 4, 7, 9}
    assert protected(ledger_of([*said, (P, "stable", 7)])) == {4, 7, 9}
    assert protected([]) == set()
    judged = [LedgerEntry(n=n, kind="KEEP", version=n, measures={"anchor": n - 80}) for n in (90, 91)]
    assert protected([*ledger_of([(P, "best", 4)]), *judged]) == {4, 11}


def test_an_entry_that_must_follow_another_is_written_there_or_not_at_all() -> None:
    ledger = Ledger(MemoryStore())
    assert ledger.last() == 0
    assert ledger.append({"kind": "KEEP", "version": 0}, after=0).n == 1
    with pytest.raises(KeyExists):
        ledger.append({"kind": "KEEP", "version": 1}, after=0)
    assert [entry.version for entry in ledger.entries()] == [0]
    assert ledger.append({"kind": "KEEP", "version": 1}, after=ledger.last()).n == 2


def test_an_entry_read_before_it_was_damaged_still_counts(tmp_path: Path) -> None:
    Ledger(LocalStore(tmp_path)).append({"kind": "PROMOTE", "version": 5, "alias": "stable"})
    running = Ledger(LocalStore(tmp_path))
    assert resolve("stable", HERE, running.entries()) == 5
    (tmp_path / "ledger" / "0000000001.json").write_bytes(b"rubbish")
    assert meaning("stable", HERE, running.entries(), running.unreadable()).version == 5
    restarted = Ledger(LocalStore(tmp_path))
    assert meaning("stable", HERE, restarted.entries(), restarted.unreadable()).doubts == (1,)


def test_a_ledger_tells_which_entries_it_cannot_read(tmp_path: Path) -> None:
    ledger = Ledger(LocalStore(tmp_path))
    for version in range(6):
        ledger.append({"kind": "KEEP", "version": version})
    (tmp_path / "ledger" / "0000000002.json").write_bytes(b"rubbish")
    for n in (4, 5):
        (tmp_path / "ledger" / f"{n:010d}.json").unlink()
    fresh = Ledger(LocalStore(tmp_path))
    assert fresh.unreadable() == [2, 4]
    assert fresh.last() == 6
    (tmp_path / "ledger" / "0000000006.json").write_bytes(b"rubbish")
    assert Ledger(LocalStore(tmp_path)).unreadable() == [2, 4, 6]


def test_a_text_of_thousands_of_digits_means_no_version() -> None:
    assert resolve("9" * 5000, HERE, []) is None
    assert (resolve("0005", HERE, []), resolve("6", HERE, [])) == (5, None)
