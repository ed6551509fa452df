"""Changes over HTTP, down to the ledger of a real folder of versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoints import resolve
from daemon.serve.store import StoreActions
from tests.daemon.models.shelf import Shelf
from tests.daemon.serve.http.toy import TOKEN, Served, running

RIGHT = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
def served(shelf: Shelf) -> Iterator[Served]:
    with running(store=StoreActions(shelf.versions, shelf.ledger, 2, list)) as one:
        yield one


def change(served: Served, verb: str, body: Any) -> tuple[int, Any]:
    return served.ask("POST", f"/v1/models/{verb}", body, RIGHT)[:2]


def stable(shelf: Shelf) -> int | None:
    return resolve("stable", shelf.versions.versions(), shelf.ledger.entries())


def test_promote_and_rollback_move_stable_with_one_entry_each(served: Served, shelf: Shelf) -> None:
    status, told = change(served, "promote", {"version": 2, "reason": "better"})
    assert (status, told["kind"], told["before"], told["after"]) == (200, "PROMOTE", 0, 2)
    assert stable(shelf) == 2
    (entry,) = shelf.ledger.entries()
    assert (entry.n, entry.reason, entry.by) == (told["entry"], "better", "http.token by HTTP from 127.0.0.1")
    assert change(served, "rollback", {})[1]["after"] == 0
    assert stable(shelf) == 0


def test_a_dry_run_writes_nothing(served: Served, shelf: Shelf) -> None:
    status, told = change(served, "promote", {"version": "latest", "dry_run": True})
    assert (status, told["after"], told["entry"]) == (200, 3, None)
    assert shelf.bytes_of_ledger() == []


def test_pin_and_take_away(served: Served, shelf: Shelf) -> None:
    assert change(served, "pin", {"alias": "launch", "version": 1})[0] == 200
    assert change(served, "gc", {"dry_run": True})[1]["gone"] == []
    assert change(served, "pin", {"alias": "launch", "version": None})[1]["after"] is None


def test_gc_tells_what_went_and_what_stays_and_why(served: Served, shelf: Shelf) -> None:
    status, told = change(served, "gc", {})
    assert (status, told["gone"]) == (200, [1])
    assert sorted(told["kept"]) == ["0", "2", "3"]
    assert shelf.versions.versions() == [0, 2, 3]


def test_refusals_have_status_code_and_field_and_write_nothing(served: Served, shelf: Shelf) -> None:
    shelf.spoil_state(2)
    refusals = [
        ("promote", {"version": 9}, 404, "no_such_version", "version"),
        ("promote", {"version": "nothing"}, 404, "no_such_version", "version"),
        ("promote", {"version": "../../etc/passwd"}, 404, "no_such_version", "version"),
        ("promote", {"version": 2}, 409, "damaged", "version"),
        ("promote", {"version": 1, "alias": "latest"}, 409, "reserved", "alias"),
        ("promote", {"version": 1, "alias": "../x"}, 409, "bad_name", "alias"),
        ("rollback", {}, 409, "nothing_before", "alias"),
        ("rollback", {"to": 9}, 404, "no_such_version", "to"),
    ]
    for verb, body, status, code, field in refusals:
        found, told = change(served, verb, body)
        assert (found, told["error"]["code"], told["error"]["field"]) == (status, code, field), (verb, body)
        assert told["error"]["remedy"]
    assert shelf.bytes_of_ledger() == []
