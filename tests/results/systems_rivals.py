"""Methods of other people that learn from the same classes at once: ridge regression, a trained linear
adapter, and those of metric-learn.

metric-learn's methods get principal directions of the owner's vectors, `REDUCED` of them: LMNN and NCA take
hours at the whole dimension. Each fit has a limit of processor time.
"""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from tests.quality.bench import rivals
from tests.results.data import Floats, Task, unit
from tests.results.judge import Scorer
from tests.results.limited import within
from tests.results.systems import DidNotFinish, Fit, Fits, System, best, bilinear, measured

REDUCED = (50, 100)
LIMIT = 60
"""Seconds of a processor for one fit."""


def ridge(task: Task) -> Fits:
    """Class indicators by ridge regression on the training part; objects by the cosine of what is predicted
    for them."""
    train = task.parts.train
    Y = (task.labels[train][:, None] == np.unique(task.labels[train])).astype(np.float64)

    def fits() -> Iterator[Fit]:
        spaces = {"as given": task.X, "in the space": task.space.dense}
        if task.name == "photos":
            spaces["all directions"] = task.fitted("precondition").dense
        for told, Z in spaces.items():
            left = Z[train].astype(np.float64)
            began = time.process_time()
            gram, cross = left.T @ left, left.T @ (Y - Y.mean(0))
            before = time.process_time() - began
            for rho in (0.1, 0.3, 1.0, 3.0, 10.0):
                began = time.process_time()
                predicted = unit(Z @ np.linalg.solve(gram + rho * np.eye(len(gram)), cross))
                seconds = before + time.process_time() - began
                yield measured(task, bilinear(predicted), f"rho = {rho:g}, {told}", seconds)

    return {RIDGE: best(fits())}


def adapter(task: Task) -> Fits:
    """One matrix on both sides, softmax over the batch, Adam, on pairs of one class: the usual adapter."""
    train, held = task.triplets[:2], _pairs(task)
    pairs = rivals.Pairs(train[:, :PAIRS], held, np.zeros(0, np.int64), np.zeros(0, np.int64))
    X = rivals._principal(task.X)

    def fits() -> Iterator[Fit]:
        for temperature in rivals.TEMPERATURES:
            loss = partial(rivals.both_sides, temperature=temperature)
            A, seconds = within(LIMIT, partial(rivals.trained, X, pairs, loss, rivals.RATES[1]))
            yield measured(
                task, bilinear(unit(X @ A)), f"temperature {temperature:g}", seconds, triplets=PAIRS
            )

    return {ADAPTER: best(fits())}


PAIRS = 50_000


def _pairs(task: Task) -> Any:
    """Pairs of one class of the validation part, by which the adapter stops."""
    rng, rows = np.random.default_rng(task.seed), task.parts.validation
    q, c = rng.choice(rows, 20_000), rng.choice(rows, 20_000)
    return np.stack([q, c])[:, (task.labels[q] == task.labels[c]) & (q != c)]


def principal(task: Task, dim: int) -> Floats:
    """The first principal directions of the owner's vectors, of the training part."""
    X, train = task.X, task.parts.train
    mean = X[train].mean(0)
    centred = (X[train] - mean).astype(np.float64)
    vectors = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :dim]
    return np.asarray((X - mean) @ vectors, np.float32)


Made = Callable[[], Any]


def metric(row: str, make: Callable[[int], Mapping[str, Made]], dims: tuple[int, ...], task: Task) -> Fits:
    """A method of metric-learn with each of its settings; scores by its distance and by the cosine of what it
    maps to, whichever validation prefers. make: number of classes -> settings in words -> makes it."""
    train = task.parts.train
    found, stopped = [], ""
    for dim in dims:
        Z = principal(task, dim)
        for told, made in make(len(np.unique(task.labels[train]))).items():
            try:
                A, seconds = within(LIMIT, partial(_components, made, Z[train], task.labels[train]))
            except DidNotFinish as limit:
                stopped = f"{row} in {dim} dimensions {limit}"
                break
            mapped = np.asarray(Z @ A.T, np.float32)
            for way, scores in (("distance", near(mapped)), ("cosine", bilinear(mapped, normalised=True))):
                settings = ", ".join(one for one in (told, f"{dim} dimensions", way) if one)
                found.append(measured(task, scores, settings, seconds))
    if not found:
        raise DidNotFinish(stopped)
    return {row: best(found)}


def near(Z: Floats) -> Scorer:
    """The nearest first."""
    squares = np.square(Z).sum(1)
    return lambda queries, gallery: 2 * Z[queries] @ Z[gallery].T - squares[gallery]


def _components(made: Made, Z: Floats, labels: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made().fit(Z.astype(np.float64), labels).components_


def metric_learn() -> Any:
    """The package. Its version 0.7 calls scikit-learn by the name that an argument had before 1.6."""
    import metric_learn as package  # type: ignore[import-untyped]
    from metric_learn import _util
    from sklearn.utils import validation

    def renamed(check: Callable[..., Any]) -> Callable[..., Any]:
        if "force_all_finite" in inspect.signature(check).parameters:
            return check

        def called(*values: Any, force_all_finite: Any = True, **named: Any) -> Any:
            return check(*values, ensure_all_finite=force_all_finite, **named)

        return called

    _util.check_array, _util.check_X_y = renamed(validation.check_array), renamed(validation.check_X_y)
    return package


def _lmnn(_: int) -> Mapping[str, Made]:
    return {"3 neighbours": lambda: metric_learn().LMNN(n_neighbors=3, max_iter=100, random_state=0)}


def _nca(_: int) -> Mapping[str, Made]:
    return {"": lambda: metric_learn().NCA(max_iter=50, random_state=0)}


def _itml(_: int) -> Mapping[str, Made]:
    def made(count: int) -> Made:
        settings = {"gamma": 1.0, "n_constraints": count, "max_iter": 200, "random_state": 0}
        return lambda: metric_learn().ITML_Supervised(**settings)

    return {f"{count:,} constraints": made(count) for count in (2_000, 10_000)}


def _rca(classes: int) -> Mapping[str, Made]:
    kept = min(classes - 1, REDUCED[0])
    return {
        "": lambda: metric_learn().RCA(),
        f"{kept} kept": lambda: metric_learn().RCA(n_components=kept),
    }


def kernel_rca(task: Task) -> Fits:
    """RCA on the principal directions of a Gaussian kernel. Its seconds are those of the directions and of
    mapping all objects to them, too."""
    from sklearn.decomposition import KernelPCA

    train, Z = task.parts.train, task.space.dense.astype(np.float64)
    squares = np.square(Z[train[::5]][:, None] - Z[train[:50]][None]).sum(2).mean()
    found = []
    for width in (0.5, 1.0, 2.0):
        began = time.process_time()
        kernel = KernelPCA(300, kernel="rbf", gamma=1 / (width * squares), random_state=0)
        kernel.fit(Z[train])
        mapped = kernel.transform(Z)
        before = time.process_time() - began
        for told, made in _rca(len(np.unique(task.labels[train]))).items():
            A, seconds = within(LIMIT, partial(_components, made, mapped[train], task.labels[train]))
            rows = np.asarray(mapped @ A.T, np.float32)
            for way, scores in (("distance", near(rows)), ("cosine", bilinear(rows, normalised=True))):
                settings = ", ".join(one for one in (f"width {width:g}", told, way) if one)
                found.append(measured(task, scores, settings, before + seconds))
    return {KERNEL_RCA: best(found)}


RIDGE, ADAPTER, KERNEL_RCA = "ridge on labels", "adapter, softmax in the batch", "kernel RCA"
PACKAGE = "metric_learn"
SYSTEMS = (
    System("ridge", (RIDGE,), ridge),
    System("rca", ("RCA",), partial(metric, "RCA", _rca, (*REDUCED, 300)), needs=PACKAGE, edition=2),
    System("kernel-rca", (KERNEL_RCA,), kernel_rca, seeds=3, needs=PACKAGE, edition=3),
    System("itml", ("ITML",), partial(metric, "ITML", _itml, REDUCED[:1]), seeds=3, needs=PACKAGE, edition=2),
    System("adapter", (ADAPTER,), adapter, seeds=3),
    System("nca", ("NCA",), partial(metric, "NCA", _nca, REDUCED[:1]), seeds=3, needs=PACKAGE, edition=2),
    System("lmnn", ("LMNN",), partial(metric, "LMNN", _lmnn, REDUCED[:1]), seeds=1, needs=PACKAGE, edition=2),
)
