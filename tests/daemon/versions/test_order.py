"""How a version orders given lists: by the ledger, and by the arrays of its arms."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints.entries import LedgerEntry
from checkpoints.manifest import Manifest
from checkpoints.versions import Version
from daemon.versions.order import (
    Answering,
    OrderChoice,
    answering,
    arm_form,
    arm_settings,
    order_form,
)
from learners import Oasis, OasisConfig
from learners.errors import StateError
from learners.maps.base import OwnRanking

CHOICE, OTHER = OrderChoice("all", 3.0, 40), OrderChoice("above", 10.0, 60)


def entries(*rows):
    return [LedgerEntry(n=n, **row) for n, row in enumerate(rows, 1)]


def keep(version, order=None, **measures):
    return {"kind": "KEEP", "version": version, "measures": {"order": order and order.to_json(), **measures}}


def promote(version, order=None, reach=True, kind="PROMOTE", alias="best", **measures):
    measures |= {} if order is None else {"order": order.to_json(), "reach": reach}
    return {"kind": kind, "version": version, "alias": alias, "measures": measures}


OLD = {"kind": "KEEP", "version": 2, "measures": {"map_shown": 0.5}}
BY_HAND = {"kind": "PROMOTE", "version": 3, "alias": "best", "by": "operator", "measures": {}}


@pytest.mark.parametrize(
    ("rows", "number", "expected"),
    [
        ([], 3, Answering()),
        ([OLD, promote(2)], 2, Answering()),
        ([keep(3)], 3, Answering()),
        ([keep(3, CHOICE)], 3, Answering(CHOICE, True)),  # asked for by name, never promoted
        ([keep(3, CHOICE), promote(3, CHOICE, reach=False)], 3, Answering(CHOICE, False)),
        ([keep(3, CHOICE), promote(3, CHOICE, reach=True)], 3, Answering(CHOICE, True)),
        # another alias says nothing, and no other version's promotion
        ([keep(3, CHOICE), promote(3, CHOICE, reach=False, alias="stable")], 3, Answering(CHOICE, True)),
        ([keep(2, CHOICE), promote(2, CHOICE, reach=False)], 3, Answering(CHOICE, True)),
        # judged again, it searches, or is ordered otherwise
        (
            [keep(3, CHOICE), promote(3, CHOICE, reach=False), keep(3, OTHER), promote(3, OTHER, reach=True)],
            3,
            Answering(OTHER, True),
        ),
        ([keep(3, CHOICE), promote(3, CHOICE, reach=False), keep(3, OTHER)], 3, Answering(OTHER, False)),
        # who promotes it by hand wants it to search
        ([keep(3, CHOICE), promote(3, CHOICE, reach=False), BY_HAND], 3, Answering(CHOICE, True)),
        # not judged yet: as the newest before it; what came later says nothing
        ([keep(2, CHOICE), keep(5, OTHER)], 4, Answering(CHOICE, True)),
        ([keep(5, OTHER), keep(2, CHOICE)], 9, Answering(OTHER, True)),
        ([keep(2, CHOICE), keep(3)], 4, Answering()),
        # its order fell: by its form, which is all that is left
        ([keep(3, CHOICE), promote(3, CHOICE, reach=False), keep(3)], 3, Answering(None, True)),
        # what cannot be read is no order
        ([{"kind": "KEEP", "version": 3, "measures": {"order": {"arm": "all"}}}], 3, Answering()),
        ([{"kind": "KEEP", "version": 3, "measures": {"order": "all"}}], 3, Answering()),
        ([keep(3, OrderChoice("all", 3.0, 0))], 3, Answering()),
        ([keep(3, OrderChoice("all", -1.0, 40))], 3, Answering()),
    ],
)
def test_how_a_version_answers(rows, number, expected):
    assert answering(entries(*rows), number) == expected


def test_a_choice_is_written_and_read():
    assert OrderChoice.from_json(CHOICE.to_json()) == CHOICE
    assert CHOICE.description == "arm all with 3 of your own ranking"
    alone = OrderChoice("all", 0.0, 40)
    assert OrderChoice.from_json(alone.to_json()) == alone
    assert alone.description == "arm all"


DIM = 48
OWN = OwnRanking("cosine", np.random.default_rng(3).uniform(0.5, 2, DIM).astype(np.float32))


def vectors(count, seed=0):
    return (np.random.default_rng(seed).standard_normal((count, DIM)) / DIM**0.5).astype(np.float32)


def learner(steps):
    """OASIS after some steps, of which the last wait to be added to W."""
    made, rows = Oasis(DIM, OasisConfig(C=0.1)), vectors(3 * steps, 1).reshape(steps, 3, DIM)
    for query, right, wrong in rows:
        made.learn_one(query, right, wrong)
    return made


def version_of(arrays, *arms):
    manifest = Manifest.__new__(Manifest)
    object.__setattr__(manifest, "learner", {"name": "oasis", "config": {"arms": list(arms)}})
    object.__setattr__(manifest, "number", 7)
    return Version(manifest, arrays)


def arm(name, geometry):
    return {"name": name, "pairs": "all", "random": True, "C": 0.05, "geometry": geometry}


def arrays_of(name, made):
    return {f"arms.{name}.{key}": array for key, array in made.state().items()}


@pytest.mark.parametrize("steps", [1, 7, 40])
@pytest.mark.parametrize("geometry", ["own", "space"])
def test_scores_are_those_of_the_arm_with_the_share_of_the_own_ranking(steps, geometry):
    made = learner(steps)
    assert any(one.any() for name, one in made.state().items() if name == "pending_tau") is (steps % 4 > 0)
    version = version_of(arrays_of("all", made), arm("all", geometry))
    z, W = vectors(9, 2).astype(np.float64), np.asarray(made.W, np.float64)
    block = z.astype(np.float32)
    z /= np.sqrt((z * z * OWN.metric).sum(axis=1, keepdims=True))  # whatever their lengths
    u = z * np.sqrt(OWN.metric.astype(np.float64)) if geometry == "own" else z
    own = (z * OWN.metric) @ z.T
    found = order_form(version, OWN, OrderChoice("all", 3.0, 40)).scores(block, block)
    np.testing.assert_allclose(found, u @ W @ u.T + 3 * own, atol=2e-5)
    before = {name: array.copy() for name, array in version.arrays.items()}
    raw = arm_form(version, OWN, "all").matrix
    np.testing.assert_allclose(z @ raw @ z.T, u @ W @ u.T, atol=2e-5)
    raw[...] = 0
    assert all(np.array_equal(version.arrays[name], one) for name, one in before.items()), "copies"


def test_an_arm_that_has_learned_nothing_ranks_as_the_user_does():
    version = version_of(arrays_of("all", Oasis(DIM, OasisConfig(C=0.1))), arm("all", "own"))
    z = vectors(9, 2)
    np.testing.assert_allclose(arm_form(version, OWN, "all").matrix, np.diag(OWN.metric), atol=1e-6)
    found = order_form(version, OWN, OrderChoice("all", 1.0, 40)).scores(z, z)
    np.testing.assert_allclose(found, 2 * OWN.form().scores(z, z), atol=1e-5)


def test_each_arm_has_its_own_arrays_and_settings():
    one, other = learner(3), learner(9)
    arrays = arrays_of("all", one) | arrays_of("above", other)
    version = version_of(arrays, arm("all", "space"), arm("above", "space"))
    assert list(arm_settings(version.manifest)) == ["all", "above"]
    np.testing.assert_array_equal(arm_form(version, OWN, "above").matrix, other.W)


def test_what_an_arm_lacks_is_said():
    good = arrays_of("all", learner(3))
    with pytest.raises(StateError, match=r"arm above: array W is missing"):
        arm_form(version_of(good, arm("all", "own"), arm("above", "own")), OWN, "above")
    with pytest.raises(StateError, match="version 7 has no arm above"):
        order_form(version_of(good, arm("all", "own")), OWN, OTHER)
    later = {**arm("all", "own"), "kind": "of-a-later-release"}
    with pytest.raises(StateError, match="arm all: arms are of the kinds oasis, "):
        arm_form(version_of(good, later), OWN, "all")
    torn = good | {"arms.all.W": np.full((DIM, DIM), np.nan, np.float32)}
    with pytest.raises(StateError, match="not finite"):
        arm_form(version_of(torn, arm("all", "own")), OWN, "all")
    with pytest.raises(StateError, match=r"not of 3 dimensions"):
        arm_form(version_of(good, arm("all", "own")), OwnRanking("cosine", np.ones(3, np.float32)), "all")
