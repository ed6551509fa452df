"""What the steady soak calls flat, and what it does not."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from checkpoints import Ledger, LocalStore
from checkpoints.retention import FOLD_EVERY, fold
from tests.soak.steady import ALLOWED, MOST_LEDGER_FILES, Held, Users, ends_of, fill_ledger, grown, tallies

LOOKS = 900


def noisy(*, start: float = 200.0, per_look: float = 0.0, tooth: float = 0.0) -> list[float]:
    """Values that fill up at first, then go up and down, with noise, and rise by `per_look`."""
    draw = random.Random(3)
    return [
        start * (1 - math.exp(-look / 60)) + draw.gauss(0, 0.2) + tooth * (look % 170) / 170 + per_look * look
        for look in range(LOOKS)
    ]


def test_what_fills_and_what_goes_up_and_down_is_flat() -> None:
    for values in (noisy(), noisy(tooth=3.0), noisy(per_look=-0.1)):
        assert grown("memory_mb", ends_of(values)) == []


def test_a_leak_of_a_third_of_a_megabyte_a_minute_grows_over_half_an_hour() -> None:
    (told,) = grown("memory_mb", ends_of(noisy(per_look=0.33 / 30)))
    assert told.startswith("memory_mb grows: ")


@pytest.mark.parametrize("name", ALLOWED)
def test_every_measure_may_grow_so_far_and_no_farther(name: str) -> None:
    level = ALLOWED[name]
    ends = ends_of([50.0] * 400 + [50.0 + level] * 100)
    assert grown(name, ends) == []
    assert len(grown(name, ends_of([1.0] * 400 + [1.0 + 1.01 * level] * 100))) == 1


def test_a_ledger_that_is_not_folded_is_told() -> None:
    values = [float(MOST_LEDGER_FILES)] * 100
    assert grown("ledger_files", ends_of(values)) == []
    (told,) = grown("ledger_files", ends_of([*values, MOST_LEDGER_FILES + 1.0]))
    assert "at one look" in told


def test_the_rows_name_who_grows_and_who_was_not_answered(tmp_path: Path) -> None:
    learn, serve = Held(), Held()
    for look in range(100):
        learn.add(memory_mb=100.0, descriptors=10.0 + look)
        serve.add(memory_mb=100.0, descriptors=10.0)
    users = Users(tmp_path, tmp_path / "tripletd.toml", 1)
    users.asked, users.failed = 40, 2
    found = tallies({"learn": learn, "serve": serve}, users, 30)
    assert [(one.what, one.tried, len(one.bad)) for one in found] == [
        ("30 minutes at work: learn", 100, 1),
        ("30 minutes at work: serve", 100, 0),
        ("30 minutes at work: answers", 40, 2),
    ]
    assert found[1].worst == "memory_mb 100 -> 100, descriptors 10 -> 10"


def test_the_ledger_has_what_the_first_start_folds(tmp_path: Path) -> None:
    fill_ledger(tmp_path)
    store = LocalStore(tmp_path)
    ledger = Ledger(store)
    assert fold(store, ledger, lambda: [0]) == FOLD_EVERY
