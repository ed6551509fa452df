"""Saved arrays that were altered are refused by name, or they make a learner, map, form or window that goes
on without any other error: nothing hangs, nothing overflows later, what was given never changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from learners import (
    KINDS,
    AsLearned,
    BlocksForm,
    CapsConfig,
    FittedSpaceMap,
    Keyed,
    KeyedConfig,
    LearnerError,
    MapError,
    Oasis,
    Omks,
    OmksMaps,
    ServingForm,
    SomlDa,
    SpaceMap,
    StateError,
    StepWindow,
    SupportsForm,
    TripletBatch,
    ViewConfig,
    learn_capped,
)
from tests.learners.learners_under_test import EACH_IMPLEMENTATION, LEARNERS
from tests.learners.under_test import UnderTest, saved

from .layouts import DIM, N, named
from .test_rows import OPTIONS, C, Q, S, X, canonical

Arrays: TypeAlias = dict[str, NDArray[Any]]


@pytest.fixture(autouse=True)
def _no_warnings_of_numbers() -> Any:
    with np.errstate(all="ignore"):
        yield


def _filled(value: Any) -> Callable[[NDArray[Any]], Any]:
    def made(array: NDArray[Any]) -> Any:
        with np.errstate(all="ignore"):
            return np.full_like(array, np.array(value).astype(array.dtype))

    return made


def _last(value: Any) -> Callable[[NDArray[Any]], Any]:
    def made(array: NDArray[Any]) -> Any:
        other = array.copy()
        with np.errstate(all="ignore"):
            other.reshape(-1)[-1:] = np.array(value).astype(array.dtype)
        return other

    return made


def _bytes(seed: int) -> Callable[[NDArray[Any]], Any]:
    def made(array: NDArray[Any]) -> Any:
        room = np.random.default_rng(seed).bytes(array.nbytes)
        return np.frombuffer(room, array.dtype).reshape(array.shape).copy()

    return made


SPOILS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "missing": lambda a: None,
    "a list": lambda a: a.tolist(),
    "text": lambda a: "W",
    "an axis more": lambda a: a[None],
    "flat": lambda a: np.concatenate([a.reshape(-1)] * 2),
    "one less": lambda a: a.reshape(-1)[:-1] if a.ndim < 2 else a[:-1],
    "one more": lambda a: np.concatenate([np.atleast_1d(a), np.atleast_1d(a)[:1]]),
    "empty": lambda a: a.reshape(-1)[:0],
    "nothing in one axis": lambda a: np.zeros((*a.shape[:-1], 0), a.dtype),
    "float64": lambda a: a.astype(np.float64),
    "float32": lambda a: a.astype(np.float32),
    "int64": lambda a: a.astype(np.int64),
    "int32": lambda a: a.astype(np.int32),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "objects": lambda a: a.astype(object),
    "Fortran": np.asfortranarray,
    "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "zeros": _filled(0),
    "ones": _filled(1),
    "below 0": _filled(-1),
    "the largest": lambda a: _filled(_limits(a)[1])(a),
    "the smallest": lambda a: _filled(_limits(a)[0])(a),
    "one of the largest": lambda a: _last(_limits(a)[1])(a),
    "one of the smallest": lambda a: _last(_limits(a)[0])(a),
    "one beyond 2^62": _last(2**62 + 1),
    "NaN": _last(np.nan),
    "inf": _last(np.inf),
    "any bytes": _bytes(0),
    "other bytes": _bytes(1),
}


def _limits(array: NDArray[Any]) -> tuple[Any, Any]:
    kind = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)  # type: ignore[type-var]
    return kind.min, kind.max


def spoiled(arrays: Mapping[str, NDArray[Any]], name: str, how: str) -> Arrays:
    """The arrays with one of them altered."""
    altered = {key: np.array(array) for key, array in arrays.items()}
    array = SPOILS[how](altered.pop(name))
    return altered if array is None else altered | {name: array}


def goes_on(
    arrays: Arrays,
    error: type[Exception],
    name: str,
    restore: Callable[[Arrays], Any],
    use: Callable[[Any], None],
) -> bool:
    """Whether arrays are taken; refused ones name the array, and either way they stay as they were."""
    before = {key: np.array(array, copy=True).tobytes() for key, array in arrays.items() if key != name}
    try:
        restored = restore(arrays)
    except error as told:
        words = (name, name.rsplit(".", maxsplit=1)[-1], name.rsplit("_", maxsplit=1)[-1])
        if not any(word in str(told) for word in words):
            pytest.fail(f"the error does not name {name}: {told}")
        return False
    use(restored)
    after = {key: np.array(array, copy=True).tobytes() for key, array in arrays.items() if key != name}
    assert after == before
    return True


def teach(learner: Any) -> None:
    """Learn, save and score as ever, unless it is one of other vectors now; a form of numbers that overflow
    may be refused."""
    if learner.dim != DIM:
        return
    learner.learn_many(TripletBatch(Q, C, S))
    learner.state()
    learner.similarity(Q, X)
    try:
        learner.form().scores(Q, X)
    except LearnerError:
        return


@EACH_IMPLEMENTATION
def test_an_altered_state_is_refused_by_name_or_goes_on(subject: UnderTest) -> None:
    learner = subject.make(DIM)
    learner.learn_many(TripletBatch(Q, C, S))
    arrays = saved(learner)
    for name in arrays:
        taken = set()
        for how in SPOILS:
            altered = spoiled(arrays, name, how)
            with named(f"{name}: {how}"):
                if goes_on(altered, StateError, name, lambda a: subject.restored(a, DIM), teach):
                    taken.add(how)
        assert not taken & {"missing", "objects", "a list", "text"}, name
        assert arrays[name].dtype.kind != "f" or not taken & {"NaN", "inf"}, name
        assert arrays[name].dtype != np.int64 or not taken & {"the largest", "one beyond 2^62"}, name


def _form(learner: str, **settings: Any) -> tuple[Any, Any]:
    (subject,) = (one for one in LEARNERS if one.name == learner)
    made = subject.make(DIM)
    made.learn_many(TripletBatch(Q, C, S))
    return made.form(**settings), getattr(made, "config", None)


FORMS: dict[str, tuple[Callable[[], tuple[Any, Any]], Callable[[Arrays, Any], Any]]] = {
    "of a matrix": (lambda: _form("oasis"), lambda a, _: ServingForm.from_arrays(a)),
    "of blocks": (lambda: _form("maps-share"), lambda a, _: BlocksForm.from_arrays(a)),
    "of supports": (lambda: _form("omks-share"), SupportsForm.from_arrays),
    "as learned": (lambda: _form("oks-rbf", power=None), AsLearned.from_arrays),
}


@pytest.mark.parametrize("kind", FORMS)
def test_an_altered_form_is_refused_by_name_or_scores(kind: str) -> None:
    make, load = FORMS[kind]
    form, config = make()
    arrays = form.arrays()

    def use(restored: Any) -> None:
        if restored.dim == DIM:
            restored.scores(Q, X)
            restored.self_scores(X)

    for name in arrays:
        for how in SPOILS:
            with named(f"{name}: {how}"):
                goes_on(spoiled(arrays, name, how), StateError, "", lambda a: load(a, config), use)


@pytest.mark.parametrize("kind", KINDS)
def test_an_altered_map_is_refused_by_name_or_maps(kind: str) -> None:
    rows = canonical(X, "sparse" if kind in ("tfidf", "by_count") else "dense")
    fitted = SpaceMap({"colour": ViewConfig(kind, OPTIONS.get(kind, {}))}).fit(rows)
    spec, arrays = fitted.spec(), fitted.arrays()

    def use(restored: Any) -> None:
        restored.transform(rows)

    for name in arrays:
        for how in SPOILS:
            with named(f"{name}: {how}"):
                altered = spoiled(arrays, name, how)
                goes_on(altered, MapError, name, lambda a: FittedSpaceMap.load(spec, a), use)
    (view,) = spec["views"]
    for field in view:
        for value in (None, "x", -1, 2.5, 10**12, [], {}, True):
            with named(f"{field}: {value}"):
                other = spec | {"views": [view | {field: value}]}
                try:
                    use(FittedSpaceMap.load(other, arrays))
                except MapError:
                    continue
    for field in spec:
        with named(f"no {field}"), pytest.raises(MapError):
            FittedSpaceMap.load({key: value for key, value in spec.items() if key != field}, arrays)


def test_an_altered_window_of_caps_is_refused_or_goes_on() -> None:
    config = CapsConfig(window=5, source=2.0, item=3.0)
    rng = np.random.default_rng(0)
    names = rng.integers(0, 4, (N, 4)).astype(np.uint64)

    def use(window: StepWindow) -> None:
        batch = TripletBatch(Q, C, S)
        learn_capped(Oasis(DIM), window, batch, np.ones(N), names, full_step=0.1)
        window.arrays()

    window = StepWindow(config)
    use(window)
    arrays = {name: array.copy() for name, array in window.arrays().items()}
    for name in arrays:
        for how in SPOILS:
            with named(f"{name}: {how}"):
                altered = spoiled(arrays, name, how)
                goes_on(altered, StateError, "", lambda a: StepWindow.from_arrays(config, a), use)


@pytest.mark.parametrize("learner", [Oasis, SomlDa])
@pytest.mark.parametrize("when_full", ["refuse", "evict"])
def test_an_altered_directory_of_keys_is_refused_or_goes_on(learner: Any, when_full: Any) -> None:
    config = KeyedConfig.of(learner, slots=3, when_full=when_full)
    made = Keyed(DIM, config)
    made.learn_many(Q, C, S, keys=["a", "b", "a", "a", "b", "b", "a"])
    arrays = saved(made)

    def use(restored: Keyed) -> None:
        restored.learn_many(Q, C, S, keys=["b", "c", "d", "e", "a", "f", "g"])
        restored.names()
        restored.events()
        Keyed.from_state(restored.state(), config)

    for name in arrays:
        for how in SPOILS:
            with named(f"{name}: {how}"):
                altered = spoiled(arrays, name, how)
                goes_on(altered, StateError, "", lambda a: Keyed.from_state(a, config), use)


@pytest.mark.parametrize("learner", [Oasis, Omks, OmksMaps, SomlDa])
def test_a_state_that_is_no_mapping_of_arrays_or_of_another_learner_is_refused(learner: Any) -> None:
    """Of each, every other learner's state."""
    subjects = {one.learner: one for one in LEARNERS if one.learner in {Oasis, Omks, OmksMaps, SomlDa}}
    for other, subject in subjects.items():
        if other is not learner:
            with named(str(other)), pytest.raises(StateError):
                subjects[learner].restored(saved(subject.make(DIM)), DIM)
    with pytest.raises(StateError):
        subjects[learner].restored({}, DIM)
