"""The capital of bets, against another library's and against its law."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import ville
from pydantic import TypeAdapter

from daemon.validate.betting import STAKES, Capital, PairedTest

HORIZON = 1_000
JSON = TypeAdapter(PairedTest)


def differences(mean, count, seed, spread=0.2):
    rng = np.random.default_rng(seed)
    return np.clip(mean + spread * rng.standard_normal(count), -1, 1)


@pytest.mark.parametrize("place", range(len(STAKES)))
def test_each_stake_is_that_of_another_library(place):
    """`ville` bets as much as its cap allows where the error is tiny: then its stake is a constant."""
    told = differences(0.05, 300, seed=place)
    oracle = ville.BettingTest(
        m0=0.0, bounds=(-1.0, 1.0), alternative="greater", alpha=1e-300, c=float(STAKES[place])
    ).fit(told)
    capital = Capital().bets(told)
    assert capital.logs[place] == pytest.approx(oracle.log_e_values_[-1], rel=1e-9)


def test_it_decides_about_as_soon_as_another_library():
    told = differences(0.04, 2_000, seed=1)
    oracle = ville.BettingTest(m0=0.0, bounds=(-1.0, 1.0), alternative="greater").fit(told)
    test, decided = PairedTest(), 0
    while test.found(0.05) == "not yet":
        test, decided = test.take(told[decided : decided + 1], HORIZON), decided + 1
    assert test.found(0.05) == "superior"
    assert decided <= 1.5 * oracle.stopping_time()


def test_the_capital_is_a_martingale():
    """Over all sequences of fair coins its mean is exactly 1, and above a bound that is not met it falls."""
    fair = [_capital(tosses) for tosses in itertools.product((-1.0, 1.0), repeat=8)]
    assert np.mean(np.exp(fair)) == pytest.approx(1.0)
    unfair = [_capital(tosses) for tosses in itertools.product((-1.0, 0.5), repeat=8)]
    assert np.mean(np.exp(unfair)) < 1


def _capital(gains):
    return Capital().bets(np.array(gains)).log


@pytest.mark.parametrize("seed", range(3))
def test_capital_has_the_same_bits_however_bets_are_cut(seed):
    """A restart, or a version more, cuts them elsewhere."""
    rng = np.random.default_rng(seed)
    told = differences(0.02, 5_000, seed=seed)
    whole, whole_test = Capital().bets(told), PairedTest().take(told, HORIZON)
    for cuts in ([1, 2, 3, 9, 4_999], sorted(rng.integers(0, 5_001, 40).tolist()), []):
        capital, test = Capital(), PairedTest()
        for part in np.split(told, cuts):
            capital, test = capital.bets(part), test.take(part, HORIZON)
        assert capital == whole
        assert test == whole_test
    restarting = Capital().restarting_bets(told)
    assert restarting == Capital().restarting_bets(told[:77]).restarting_bets(told[77:])


def test_lists_that_all_say_the_same_are_foreseen_too():
    for same in (1.0, -1.0):
        test = PairedTest().take([same] * 3, HORIZON)
        assert test.variance == 0
        assert (test.missing(0.05) is not None) is (same > 0)


@pytest.mark.parametrize(("mean", "finding"), [(0.05, "superior"), (-0.05, "inferior"), (0.0, "equivalent")])
def test_what_is_found(mean, finding):
    test = PairedTest().take(differences(mean, 3 * HORIZON, seed=3), HORIZON)
    assert test.found(0.05) == finding


def test_a_few_differences_say_nothing():
    assert PairedTest().found(0.05) == "not yet"
    assert PairedTest().take(differences(0.02, 20, seed=4), HORIZON).found(0.05) == "not yet"


def test_what_is_missing_is_about_what_it_takes():
    told = np.tile([0.23, -0.17], 2_000)
    test = PairedTest().take(told[:120], HORIZON)
    foreseen = test.missing(0.05)
    needed = 120
    while test.found(0.05) != "superior":
        test, needed = test.take(told[needed : needed + 1], HORIZON), needed + 1
    assert 0.6 < foreseen / (needed - 120) < 1.6
    assert PairedTest().missing(0.05) is None
    assert PairedTest().take(differences(-0.05, 200, seed=6), HORIZON).missing(0.05) is None


def test_a_test_goes_on_from_the_ledger():
    told = differences(0.02, 200, seed=7)
    whole = PairedTest().take(told, HORIZON)
    half = json.loads(json.dumps(JSON.dump_python(PairedTest().take(told[:90], HORIZON), mode="json")))
    assert JSON.validate_python(half).take(told[90:], HORIZON) == whole
    with pytest.raises(ValueError, match="stakes"):
        JSON.validate_python({**half, "above": [0.0]})


def test_a_difference_outside_is_refused():
    for wrong in (1.01, -2.0, float("nan")):
        with pytest.raises(ValueError, match="not in"):
            PairedTest().take([wrong], HORIZON)


def test_a_capital_that_begins_again_finds_a_change_late_in_a_good_life():
    capital, plain = Capital(), Capital()
    told = differences(-0.05, 5_000, seed=8)
    capital, plain = capital.restarting_bets(told), plain.bets(told)
    assert plain.log < -7
    assert capital.log < math.log(1_000)
    told = differences(0.05, 700, seed=9)
    capital, plain = capital.restarting_bets(told), plain.bets(told)
    assert capital.log > math.log(50_000)
    assert plain.log < 0
