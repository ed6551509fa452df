"""Promote, rollback, pin, unpin on a real folder: one entry each, or a refusal that writes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import Ledger, LocalStore, VersionStore, aliases, prune, resolve
from checkpoints.entries import protected
from daemon.models.actions import AliasMove
from daemon.models.decide import MoveRefused

from .moves import pin, promote, rollback, unpin
from .shelf import MAP, Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def stable(shelf: Shelf) -> int | None:
    return resolve("stable", shelf.versions.versions(), shelf.ledger.entries())


def promoted(shelf: Shelf, version: int | str, alias: str = "stable", **more: Any) -> AliasMove:
    return promote(shelf.versions, shelf.ledger, version, alias, by="ann", **more)


def rolled_back(shelf: Shelf, alias: str = "stable", to: int | str | None = None) -> AliasMove:
    return rollback(shelf.versions, shelf.ledger, alias, to, by="ann")


def refused(shelf: Shelf, reason: str, field: str, move: Callable[[], object]) -> MoveRefused:
    """The refusal of `move`, which has written nothing and says what to do."""
    before = shelf.bytes_of_ledger()
    with pytest.raises(MoveRefused) as caught:
        move()
    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert caught.value.remedy
    assert shelf.bytes_of_ledger() == before
    return caught.value


def test_promote_writes_one_entry_that_says_who_and_why(shelf: Shelf) -> None:
    shelf.says("PROMOTE", 1, "best")
    moved = promoted(shelf, 2, reason="better on Monday")
    entry = shelf.ledger.entries()[-1]
    assert moved.entry == entry
    assert (entry.n, entry.kind, entry.version, entry.alias) == (2, "PROMOTE", 2, "stable")
    assert (entry.by, entry.reason) == ("ann", "better on Monday")
    assert (moved.before, moved.after, stable(shelf)) == (1, 2, 2)


@pytest.mark.parametrize(("name", "number"), [("latest", 3), ("best", 1), ("2", 2), (2, 2), ("kept", 2)])
def test_versions_go_by_number_or_name(shelf: Shelf, name: int | str, number: int) -> None:
    shelf.says("PROMOTE", 1, "best")
    shelf.says("PROMOTE", 2, "kept")
    assert promoted(shelf, name).after == stable(shelf) == number


def test_best_moves_on_and_stable_stays(shelf: Shelf) -> None:
    shelf.says("PROMOTE", 1, "best")
    assert stable(shelf) == 1
    promoted(shelf, 1)
    shelf.says("PROMOTE", 3, "best")
    assert stable(shelf) == 1


def test_rollbacks_go_back_one_promotion_each(shelf: Shelf) -> None:
    shelf.says("PROMOTE", 1, "best")
    promoted(shelf, 2)
    promoted(shelf, 3)
    assert rolled_back(shelf).after == stable(shelf) == 2
    assert rolled_back(shelf).after == stable(shelf) == 1
    refused(shelf, "nothing_before", "alias", lambda: rolled_back(shelf))
    assert rolled_back(shelf, to=3).after == stable(shelf) == 3
    assert [entry.kind for entry in shelf.ledger.entries()[-3:]] == ["ROLLBACK"] * 3


def test_a_pin_is_kept_and_not_moved(shelf: Shelf) -> None:
    pin(shelf.versions, shelf.ledger, "monday", 1, by="ann")
    assert aliases(shelf.ledger.entries()) == {"monday": 1}
    refused(shelf, "pinned", "alias", lambda: promoted(shelf, 2, "monday"))
    refused(shelf, "pinned", "alias", lambda: rolled_back(shelf, "monday"))
    refused(shelf, "pinned", "alias", lambda: pin(shelf.versions, shelf.ledger, "monday", 2, by="ann"))
    refused(shelf, "already_there", "version", lambda: pin(shelf.versions, shelf.ledger, "monday", 1, by="a"))
    assert unpin(shelf.versions, shelf.ledger, "monday", by="ann").before == 1
    assert aliases(shelf.ledger.entries()) == {}
    refused(shelf, "already_there", "alias", lambda: unpin(shelf.versions, shelf.ledger, "monday", by="ann"))
    assert pin(shelf.versions, shelf.ledger, "monday", 2, by="ann").after == 2


def test_stable_unpinned_follows_best_again_and_says_so(shelf: Shelf) -> None:
    shelf.says("PROMOTE", 1, "best")
    promoted(shelf, 3)
    moved = unpin(shelf.versions, shelf.ledger, "stable", by="ann")
    assert "version 1 (as best)" in moved.notes[0]
    assert stable(shelf) == 1
    assert rolled_back(shelf).after == 3


@pytest.mark.parametrize(
    ("version", "alias", "reason", "field"),
    [
        (9, "stable", "no_such_version", "version"),
        ("nobody", "stable", "no_such_version", "version"),
        ("3+40", "stable", "no_such_version", "version"),
        (2, "latest", "reserved", "alias"),
        (2, "best", "reserved", "alias"),
        (2, "own", "reserved", "alias"),
        (2, "7", "bad_name", "alias"),
        (2, "../up", "bad_name", "alias"),
        (2, "Stable", "bad_name", "alias"),
        (2, "", "bad_name", "alias"),
        (2, "x" * 65, "bad_name", "alias"),
    ],
)
def test_refused_by_name(shelf: Shelf, version: int | str, alias: str, reason: str, field: str) -> None:
    refused(shelf, reason, field, lambda: promoted(shelf, version, alias))


def test_refused_where_it_is_already(shelf: Shelf) -> None:
    promoted(shelf, 2)
    refused(shelf, "already_there", "version", lambda: promoted(shelf, 2))
    refused(shelf, "already_there", "to", lambda: rolled_back(shelf, to=2))


def test_a_damaged_version_is_refused(shelf: Shelf) -> None:
    shelf.spoil_state(2)
    error = refused(shelf, "damaged", "version", lambda: promoted(shelf, 2))
    assert "sha256" in error.message
    promoted(shelf, 3)
    refused(shelf, "damaged", "to", lambda: rolled_back(shelf, to=2))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(shelf: Shelf, bad: float) -> None:
    W = np.eye(3, dtype=np.float32)
    W[2, 1] = bad
    number = shelf.add(W)
    assert "W" in refused(shelf, "not_finite", "version", lambda: promoted(shelf, number)).message


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"map": MAP | {"id": "other"}}, "map"),
        ({"space": "texts"}, "space"),
        ({"W": np.eye(5, dtype=np.float32)}, "shape"),
    ],
)
def test_another_map_space_or_shape_than_is_served_is_refused(
    shelf: Shelf, changes: dict[str, Any], told: str
) -> None:
    promoted(shelf, 1)
    number = shelf.add(**changes)
    assert told in refused(shelf, "other_space", "version", lambda: promoted(shelf, number)).message
    refused(shelf, "other_space", "to", lambda: rolled_back(shelf, to=number))


def test_a_dry_run_refuses_alike_and_writes_nothing(shelf: Shelf) -> None:
    promoted(shelf, 1)
    before = shelf.bytes_of_ledger()
    moved = promoted(shelf, 2, dry_run=True)
    assert (moved.before, moved.after, moved.entry) == (1, 2, None)
    assert shelf.bytes_of_ledger() == before
    refused(shelf, "no_such_version", "version", lambda: promoted(shelf, 9, dry_run=True))


def test_what_the_validator_refused_is_told(shelf: Shelf) -> None:
    shelf.says("KEEP", 2, reason="refused: its serving form has no items", measures={"refused": True})
    assert "no items" in promoted(shelf, 2).notes[0]


def test_a_lost_promotion_moves_nothing_and_is_settled_by_the_next(shelf: Shelf) -> None:
    promoted(shelf, 1)
    lost = shelf.says("PROMOTE", 3, "stable")
    shelf.spoil_entry(lost)
    assert stable(shelf) == 1, "the last readable intention"
    moved = promoted(shelf, 1)  # said once more: it was in doubt
    assert str(lost) in moved.notes[0]
    refused(shelf, "already_there", "version", lambda: promoted(shelf, 1))


class Overtaken(Ledger):
    """Right before each of the next puts somebody else says something."""

    def __init__(self, root: Path, rivals: list[Callable[[], object]]) -> None:
        super().__init__(LocalStore(root))
        self.rivals = rivals

    def append(self, entry: dict[str, Any], after: int | None = None) -> Any:
        if self.rivals:
            self.rivals.pop()()
        return super().append(entry, after)


def test_the_loser_of_a_race_decides_anew(shelf: Shelf) -> None:
    promoted(shelf, 1)
    ledger = Overtaken(shelf.root, [lambda: promoted(shelf, 3)])
    moved = promote(shelf.versions, ledger, 2, by="bob")
    assert (moved.before, moved.after) == (3, 2)
    assert rolled_back(shelf).after == 3
    ledger = Overtaken(shelf.root, [lambda: promoted(shelf, 2)])
    with pytest.raises(MoveRefused) as caught:
        promote(shelf.versions, ledger, 2, by="bob")
    assert caught.value.reason == "already_there"


def test_a_race_lost_again_and_again_ends(shelf: Shelf) -> None:
    ledger = Overtaken(shelf.root, [lambda: shelf.says("KEEP", 1)] * 1000)
    with pytest.raises(MoveRefused) as caught:
        promote(shelf.versions, ledger, 2, by="bob")
    assert caught.value.reason == "busy"
    assert aliases(shelf.ledger.entries()) == {}


def test_a_version_pruned_just_then_is_not_pointed_at(shelf: Shelf) -> None:
    promoted(shelf, 1)

    def prune_2() -> None:
        entries = shelf.ledger.entries()
        assert prune(shelf.versions, lambda: protected(entries), 1, lambda: None) == []
        shelf.add()
        assert prune(shelf.versions, lambda: protected(entries), 1, lambda: None) == [2]

    ledger = Overtaken(shelf.root, [prune_2])
    with pytest.raises(MoveRefused) as caught:
        promote(shelf.versions, ledger, 2, by="bob")
    assert caught.value.reason == "no_such_version"
    assert stable(shelf) == 1
    assert shelf.ledger.entries()[-1].kind == "ROLLBACK"


def test_moves_at_once_are_each_decided_on_the_one_before(shelf: Shelf) -> None:
    moved: list[AliasMove] = []
    reasons: set[str] = set()

    def flip() -> None:
        versions, ledger = VersionStore(LocalStore(shelf.root)), Ledger(LocalStore(shelf.root))
        for version in (1, 2, 3) * 3:
            try:
                moved.append(promote(versions, ledger, version, by="ann"))
            except MoveRefused as error:
                reasons.add(error.reason)

    threads = [threading.Thread(target=flip) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert reasons <= {"already_there"}
    entries = shelf.ledger.entries()
    written = {move.entry.n: move for move in moved if move.entry is not None}
    assert [entry.n for entry in entries] == list(range(1, len(entries) + 1)) == sorted(written)
    before: int | None = 0
    for entry in entries:
        assert written[entry.n].before == before
        assert entry.version != before or before == 0
        before = entry.version


def test_moves_are_plain_data(shelf: Shelf) -> None:
    moved = promoted(shelf, 2)
    assert replace(moved, entry=None) == AliasMove("PROMOTE", "stable", 0, 2, "ann", "asked for", None)
