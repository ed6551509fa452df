"""Which version an alias serves: a table of what is listed, said, served and barred."""

from __future__ import annotations

import pytest

from checkpoints.entries import LedgerEntry
from daemon.replica.decide import Keep, Load, ServedVersion, StoreListing, choose


def move(n, version, alias="stable", kind="PROMOTE"):
    return LedgerEntry(n=n, kind=kind, version=version, alias=alias)


def seen(versions=(0, 1, 2, 3), entries=(), barred=None):
    return StoreListing(versions, entries, barred or {})


@pytest.mark.parametrize(
    ("name", "what", "served", "wanted"),
    [
        ("latest", seen(), None, Load(3)),
        ("latest", seen(), ServedVersion(2), Load(3)),
        ("latest", seen(), ServedVersion(3), Keep()),
        ("latest", seen(barred={3: "torn"}), ServedVersion(1), Load(2)),
        ("latest", seen(barred={3: "torn"}), ServedVersion(2), Keep("torn")),
        ("latest", seen(barred={3: "torn", 2: "NaN"}), None, Load(1)),
        ("latest", seen(versions=(0, 1, 3), barred={3: "torn"}), ServedVersion(2), Keep("torn")),
        ("latest", seen(versions=()), None, Keep("latest means no version that is there")),
        ("latest", seen(versions=()), ServedVersion(3), Keep()),
        ("best", seen(entries=[move(1, 2, "best")]), None, Load(2, 1)),
        ("best", seen(), None, Keep("best means no version that is there")),
        ("stable", seen(), None, Load(0)),
        ("stable", seen(entries=[move(1, 2, "best")]), ServedVersion(0), Load(2, 1)),
        ("stable", seen(entries=[move(1, 3), move(2, 1)]), ServedVersion(3, 1), Load(1, 2)),
        ("stable", seen(entries=[move(1, 3), move(2, 1, kind="ROLLBACK")]), ServedVersion(3, 1), Load(1, 2)),
        ("stable", seen(entries=[move(1, 2), move(5, 2)]), ServedVersion(2, 1), Keep(entry=5)),
        ("stable", seen(entries=[move(1, 1), move(2, 3)], barred={3: "torn"}), None, Load(1)),
        ("stable", seen(entries=[move(1, 2), move(2, 1), move(3, 3)], barred={3: "torn"}), None, Load(1)),
        (
            "stable",
            seen(entries=[move(1, 1), move(2, 3)], barred={3: "torn"}),
            ServedVersion(1),
            Keep("torn"),
        ),
        ("stable", seen(entries=[move(1, 1), move(2, 3)]), ServedVersion(1), Load(3, 2)),
        ("stable", seen(versions=(0, 1), entries=[move(1, 3)]), ServedVersion(1), Keep()),
        ("own", seen(entries=[move(1, 2, "best"), move(2, 1)]), None, Load(0)),
        ("own", seen(entries=[move(1, 2, "best"), move(2, 1)]), ServedVersion(0), Keep()),
        ("good", seen(entries=[move(4, 1, "good")]), None, Load(1, 4)),
        ("2", seen(), None, Load(2)),
        ("7", seen(), None, Keep("7 means no version that is there")),
    ],
)
def test_what_is_chosen(name, what, served, wanted):
    assert choose(name, what, served) == wanted


def test_older_without_a_later_verdict_is_kept_off_and_named():
    kept = choose("latest", seen(versions=(0, 1)), ServedVersion(3))
    assert isinstance(kept, Keep)
    assert kept.older == 1
    assert "version 1 is older than 3" in kept.why
    lost = choose("stable", seen(entries=[move(1, 1)]), ServedVersion(3, 2))
    assert isinstance(lost, Keep)
    assert (lost.older, lost.entry) == (1, 2)


def test_what_the_step_log_will_bring_is_not_loaded():
    assert choose("latest", seen(), ServedVersion(2), awaited=True) == Keep(
        "version 3 is awaited from the step log"
    )
    assert choose("latest", seen(), None, awaited=True) == Load(3)


def test_an_older_version_taken_in_need_is_left_as_soon_as_the_wanted_one_loads():
    entries = [move(1, 3), move(2, 1)]
    first = choose("stable", seen(entries=entries, barred={1: "torn"}), None)
    assert first == Load(3)
    assert choose("stable", seen(entries=entries), ServedVersion(3, first.entry)) == Load(1, 2)
