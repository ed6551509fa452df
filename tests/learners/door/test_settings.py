"""Settings and keys that mean nothing are refused when they are given, by name; what is too small for float32
is told."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from learners import (
    KINDS,
    Averaged,
    BlockError,
    CapsConfig,
    ConfigError,
    Dissim,
    DissimConfig,
    HedgeConfig,
    KernelConfig,
    Keyed,
    KeyedConfig,
    Lego,
    LegoConfig,
    MapError,
    Oasis,
    OasisConfig,
    OmksConfig,
    OmksMaps,
    OmksMapsConfig,
    PrecisionNotice,
    SomlDa,
    SomlDaConfig,
    SomlTg,
    SomlTgConfig,
    StateError,
    TetherConfig,
    Tethered,
    TripletBatch,
    UnitMap,
    ViewKernels,
    as_block,
    fit_map,
)
from learners.maps import ViewConfig
from tests.learners.oracle_oasis import DissimOracle, OasisOracle
from tests.learners.under_test import bits
from tests.quality.bench.sets import unit

from .layouts import DIM, N, exact_rows, refuses

Q, C, S = exact_rows(0), exact_rows(1), exact_rows(2)

NOT_WHOLE = (1.5, 2.0, "2", None, True, np.float64(3), np.array([2, 3]))
NO_NUMBER = ("0.1", None, True, [0.1], np.array([0.1, 0.2]), 1j)


def _view(**settings: Any) -> ViewKernels:
    return ViewKernels(**{"start": 0, "stop": 2, **settings})


WHOLE: dict[str, Callable[[Any], Any]] = {
    "Oasis psd_every": lambda n: OasisConfig(psd_every=n),
    "Dissim psd_every": lambda n: DissimConfig(psd_every=n),
    "degree": lambda n: KernelConfig("polynomial", degree=n),
    "start": lambda n: _view(start=n, stop=5),
    "stop": lambda n: _view(stop=n),
    "triplets": lambda n: OmksConfig((_view(),), triplets=n),
    "objects": lambda n: OmksConfig((_view(),), objects=n),
    "width": lambda n: OmksMapsConfig((n, 3)),
    "pull_every": lambda n: TetherConfig(OasisConfig(), n),
    "slots": lambda n: KeyedConfig.of(Oasis, slots=n),
    "evict_after": lambda n: KeyedConfig.of(Oasis, slots=2, evict_after=n),
    "window": lambda n: CapsConfig(window=n),
    **{
        f"dim of {learner.__name__}": lambda n, learner=learner: learner(n)
        for learner in (Oasis, Averaged, Dissim, Lego, SomlTg, SomlDa)
    },
}

NUMBERS: dict[str, Callable[[Any], Any]] = {
    "Oasis C": lambda x: OasisConfig(C=x),
    "Dissim C": lambda x: DissimConfig(C=x),
    "eta": lambda x: LegoConfig(eta=x),
    "Tg eta": lambda x: SomlTgConfig(eta=x),
    "lam": lambda x: SomlTgConfig(lam=x),
    "gamma": lambda x: SomlDaConfig(gamma=x),
    "rho": lambda x: SomlDaConfig(rho=x),
    "sigma": lambda x: KernelConfig(sigma=x),
    "scale": lambda x: KernelConfig("polynomial", scale=x),
    "shift": lambda x: KernelConfig("polynomial", shift=x),
    "view gamma": lambda x: _view(gamma=x),
    "OMKS C": lambda x: OmksConfig((_view(),), C=x),
    "maps C": lambda x: OmksMapsConfig((3, 3), C=x),
    "beta": lambda x: HedgeConfig(beta=x),
    "share": lambda x: HedgeConfig(share=x),
    "discount": lambda x: HedgeConfig("discount", discount=x),
    "hedge C": lambda x: HedgeConfig("margins", C=x),
    "weights": lambda x: HedgeConfig("given", weights=(x, 1.0)),
    "decay": lambda x: TetherConfig(OasisConfig(), 3, decay=x),
    "radius": lambda x: TetherConfig(OasisConfig(), 3, radius=x),
    "source": lambda x: CapsConfig(window=3, source=x),
}


@pytest.mark.parametrize("setting", WHOLE)
def test_a_count_that_is_no_whole_number_is_refused_by_name(setting: str) -> None:
    """psd_every = 1.5 learned for ever, degree = 2.5 became 2."""
    for value in NOT_WHOLE:
        refuses(
            f"{setting} = {value!r}",
            ConfigError,
            lambda v=value: WHOLE[setting](v),
            setting.rsplit(maxsplit=1)[-1],
            "dim",
        )
    WHOLE[setting](np.int64(4))


@pytest.mark.parametrize("setting", NUMBERS)
def test_a_setting_that_is_no_number_is_refused_by_name(setting: str) -> None:
    for value in (*NO_NUMBER, np.nan, -1.0):
        words = (setting.rsplit(maxsplit=1)[-1],)
        refuses(f"{setting} = {value!r}", ConfigError, lambda v=value: NUMBERS[setting](v), *words)
    NUMBERS[setting](np.float32(0.5))


OPTIONS = {
    "whiten": ("components",), "rff": ("components", "seed"), "hike": ("levels",),
    "nystroem": ("components", "landmarks", "seed"), "pcalap": ("directions", "functions"),
    "rplap": ("directions", "functions", "seed"), "addkpca": ("landmarks", "functions", "seed"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_refuses_counts_that_are_none_and_options_it_does_not_have(kind: str) -> None:
    rows: Any = sparse.csr_array(Q) if kind in ("tfidf", "by_count") else Q
    for name in OPTIONS.get(kind, ()):
        for value in NOT_WHOLE:
            config = ViewConfig(kind, {name: value})
            refuses(f"{name} = {value!r}", MapError, lambda c=config: fit_map(c, rows), name)
    refuses("an option", MapError, lambda: fit_map(ViewConfig(kind, {"colour": 1}), rows), "colour")


def keyed() -> Keyed:
    return Keyed(DIM, KeyedConfig.of(Oasis, slots=4))


LONG = "tenant-" + "x" * 57
"""64 bytes: the longest key."""
NO_KEYS = {
    "a byte too many": LONG + "1", "64 letters of two bytes": "é" * 64, "a byte 0": "a\0b",
    "a number": 7, "None": None, "a list": ["a"], "half a character": "\ud800", "no UTF-8": b"\xff\xfe",
}  # fmt: skip


@pytest.mark.parametrize("what", NO_KEYS)
def test_a_key_is_learned_whole_or_refused(what: str) -> None:
    """Cut at 64 bytes, two tenants shared a model."""
    learner, key = keyed(), NO_KEYS[what]
    one: Any = Q[0], C[0], S[0]
    several = ["fine"] * (N - 1) + [key]
    ways: list[Callable[[], Any]] = [
        lambda: learner.learn_one(*one, key),
        lambda: learner.learn_many(Q, C, S, keys=several),
        lambda: learner.learn_many(Q, C, S, keys=np.array(several, object)),
        lambda: learner.learn_many(TripletBatch(Q, C, S, keys=np.array(several, object))),
        lambda: learner.learner_of(key),
    ]
    if isinstance(key, bytes):
        ways.append(lambda: learner.learn_many(TripletBatch(Q, C, S, keys=np.array([key] * N, "S64"))))
    for way in ways:
        refuses(what, BlockError, way, "key")
    assert learner.names() == []
    learner.learn_one(*one, LONG)
    assert learner.names() == [LONG]
    assert Keyed.from_state(learner.state(), learner.config).names() == [LONG]


@pytest.mark.parametrize(
    "given",
    [
        list, tuple, np.array, lambda keys: np.array(keys, object), lambda keys: np.array(keys, "S"),
        lambda keys: np.array(keys, "S64"), lambda keys: np.array(keys, "S100"),
        lambda keys: [*map(str.encode, keys)],
    ],
    ids=["list", "tuple", "U", "objects", "S", "S64", "S100", "bytes"],
)  # fmt: skip
def test_keys_in_any_sequence_are_the_same_keys(given: Any) -> None:
    """An array of texts left the directory broken."""
    keys = ["a", "", "b", "a", "c", "b", "a"]
    wanted, found, made = keyed(), keyed(), keyed()
    wanted.learn_many(Q, C, S, keys=keys)
    found.learn_many(Q, C, S, keys=given(keys))
    made.learn_many(TripletBatch(Q, C, S, keys=given(keys)))
    assert bits(found) == bits(made) == bits(wanted)
    assert found.names() == ["a", "b", "c"]


def test_keys_of_another_number_or_shape_are_refused() -> None:
    for keys in (["a"], "a" * N, b"a" * N, np.array([["a"]] * N), np.arange(N), 5, iter("a" * N), {"a": 1}):
        refuses(repr(keys), BlockError, lambda k=keys: keyed().learn_many(Q, C, S, keys=k), "key")


SHORT = 1e-4 / np.sqrt(DIM)
"""Of vectors of length about 1e-4."""


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("make", [
    lambda: Oasis(DIM), lambda: Dissim(DIM), lambda: Lego(DIM), lambda: Averaged(DIM),
    lambda: OmksMaps(DIM, OmksMapsConfig((DIM,))), lambda: Tethered(DIM, TetherConfig(OasisConfig(), 3)),
], ids=["oasis", "dissim", "lego", "averaged", "maps", "tethered"])  # fmt: skip
def test_vectors_too_short_to_move_the_diagonal_of_W_are_told_once_with_the_remedy(
    make: Callable[[], Any], kind: str
) -> None:
    """Steps of 1e-9 are lost beside 1 in float32: every event updates, and the diagonal stays as it was."""
    learner = make()
    rows: list[Any] = [SHORT * values for values in (Q, C, S)]
    if kind == "sparse":
        rows = [sparse.csr_array(values) for values in rows]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(4):
            info = learner.learn_many(*rows)
    assert [one.category for one in told] == [PrecisionNotice]
    assert "unit length" in str(told[0].message)
    assert (info.outcome == 0).any()
    diagonal = learner.state()["W"].reshape(DIM, DIM).diagonal()
    assert (diagonal == 1).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionNotice)
        other, unit = make(), UnitMap.fit(Q, {})
        for _ in range(4):
            other.learn_many(*(unit.transform(as_block(values)) for values in (Q, C, S)))
        for learner in (SomlTg(DIM), SomlDa(DIM)):
            learner.learn_many(*rows)  # nothing there starts from 1


@pytest.mark.parametrize("dim", [8, 24, 200])
@pytest.mark.parametrize(
    ("make", "oracle"), [(Oasis, OasisOracle), (Dissim, DissimOracle)], ids=["oasis", "dissim"]
)
def test_rounding_is_told_where_it_takes_a_hundredth_of_what_is_learned(
    make: Any, oracle: Any, dim: int
) -> None:
    """W - I beside that in float64, over lengths from 1 to 1e-3: told wherever 2 % is lost, never where less
    than half a percent is."""
    rng = np.random.default_rng(dim)
    rows = [unit(rng.standard_normal((200, dim))) for _ in range(3)]
    lost, told = [], []
    for length in np.logspace(0, -3, 13):
        triplets = [(length * values).astype(np.float32) for values in rows]
        learner, exact = make(dim), oracle(dim)
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always")
            learner.learn_many(*triplets)
        for triplet in zip(*(values.astype(np.float64) for values in triplets), strict=True):
            exact.step(*triplet)
        lost.append(np.linalg.norm(learner.W - exact.W) / np.linalg.norm(exact.W - np.eye(dim)))
        told.append(bool(notices))
    assert lost[0] < 1e-5
    assert max(lost) > 0.05
    assert all(one for one, share in zip(told, lost, strict=True) if share > 0.02)
    assert not any(one for one, share in zip(told, lost, strict=True) if share < 0.005)


def test_steps_that_are_small_because_little_is_left_to_learn_are_not_told() -> None:
    """The same triplets again and again end with losses of rounding."""
    rng = np.random.default_rng(0)
    rows = [(rng.random((16, 128)) * (rng.random((16, 128)) < 0.3)).astype(np.float32) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionNotice)
        learner, losses = Oasis(128), [1.0]
        for _ in range(2000):
            info = learner.learn_many(*rows)
            losses += info.loss[info.loss > 0].tolist()
    assert min(losses) < 1e-6


def test_a_stream_whose_vectors_become_short_is_told_too() -> None:
    learner = Oasis(DIM)
    learner.learn_many(Q, C, S)
    short = (np.tile(SHORT * values, (2, 1)) for values in (Q, C, S))
    with pytest.warns(PrecisionNotice):
        learner.learn_many(*short)


def test_a_count_that_no_stream_reaches_is_refused_instead_of_overflowing_at_the_next_step() -> None:
    learner = Oasis(DIM)
    state = learner.state() | {"events": np.array(2**63 - 1, np.int64)}
    refuses("2^63 - 1 events", StateError, lambda: Oasis.from_state(state), "events")
    state["events"] = np.array(2**62, np.int64)
    going = Oasis.from_state(state)
    going.learn_many(Q, C, S)
    assert going.state()["events"] == 2**62 + N
