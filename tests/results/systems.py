"""The protocol: what a method is given, and what it gives.

A method sees a `Task`: the classes of the training and validation parts, never those of the test part. It
learns from the training part, and whatever it chooses, its settings and when it stops, it chooses by the mean
average precision of validation queries among validation objects. What it gives is then judged once: test
queries among test objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from learners.base import Learner
from tests.results.data import SETS, Floats, Ints, Space, Task
from tests.results.judge import Scorer, judge

DENSE = ("photos", "sentences", "fashion")


@dataclass(frozen=True, eq=False)
class Fit:
    """A method that has learned. validation: its mAP there. chosen: its settings in words. triplets: how many
    it had learned from, None where it takes none. seconds: of a processor, of learning with these settings.
    zeros: the share of zeros in what was learned, None where that is no matrix or vector. curve: validation
    mAP after so many triplets. grid: validation mAP of all settings that were tried.
    """

    scores: Scorer
    validation: float
    chosen: str = ""
    triplets: int | None = None
    seconds: float = 0.0
    zeros: float | None = None
    curve: tuple[tuple[int, float], ...] = ()
    grid: Mapping[str, float] = field(default_factory=dict)


class DidNotFinish(Exception):
    """A fit took longer than its limit."""


Fits: TypeAlias = Mapping[str, Fit]
"""By the name of a row."""


@dataclass(frozen=True)
class System:
    """One or several rows of a table that are made together. rows: their names. fit: gives a `Fit` for each.
    sets: those it makes sense for; why: what they have that others lack. seeds: over how many it is
    measured. needs: a package without which it is left out. edition: of what it does; cells of another one
    are made again.
    """

    name: str
    rows: tuple[str, ...]
    fit: Callable[[Task], Fits]
    sets: tuple[str, ...] = SETS
    why: str = ""
    seeds: int = 5
    needs: str = ""
    edition: int = 1


def validate(task: Task, scores: Scorer) -> float:
    """The mAP that choices are made by."""
    rows = task.parts.validation
    return judge(scores, task.labels, rows, rows).map


def best(fits: Iterable[Fit]) -> Fit:
    """That with the highest validation mAP; the first of several. It tells what the others had."""
    found = list(fits)
    grid = {one.chosen: one.validation for one in found}
    return replace(max(found, key=lambda one: one.validation), grid=grid)


def best_by_row(settings: Iterable[Fits]) -> dict[str, Fit]:
    """`best` for each row by itself: each of the mappings is of one setting."""
    found: dict[str, list[Fit]] = {}
    for fits in settings:
        for row, fit in fits.items():
            found.setdefault(row, []).append(fit)
    return {row: best(fits) for row, fits in found.items()}


def measured(task: Task, scores: Scorer, chosen: str = "", seconds: float = 0.0, **known: Any) -> Fit:
    """A fit of these scores."""
    return Fit(scores, validate(task, scores), chosen, seconds=seconds, **known)


def bilinear(Z: Floats, W: Floats | None = None, normalised: bool = False) -> Scorer:
    """Scores q^T W p, W = I where None; normalised by the roots of the positive part of p^T W p."""
    roots = np.ones(len(Z), np.float32)
    if normalised:
        own = np.einsum("nd,nd->n", Z if W is None else Z @ W, Z)
        roots = np.where(own > 0, 1 / np.sqrt(np.maximum(own, 1e-20)), 0).astype(np.float32)

    def scores(queries: Ints, gallery: Ints) -> Floats:
        folded = Z[queries] if W is None else Z[queries] @ W
        return np.asarray(folded @ Z[gallery].T * roots[gallery])

    return scores


def formed(space: Space, form: Any) -> Scorer:
    """Scores of a form of the library."""
    return lambda queries, gallery: form.scores(space.rows(queries), space.rows(gallery))


FIRST_LOOK, FACTOR, PATIENCE = 2_500, 2, 2
"""Validation looks after 2,500 triplets and then whenever there are twice as many; where its mAP has not
risen for two looks in a row, the best one counts."""

Forms: TypeAlias = Mapping[str, Callable[[Any, Space], tuple[Scorer, Any]]]
"""Row -> makes scores and the array whose zeros count (or None) of a learner; neither may change as it goes
on learning."""


def looks(most: int) -> Iterator[int]:
    """The numbers of triplets after which validation looks."""
    count = FIRST_LOOK
    while count < most:
        yield count
        count *= FACTOR
    yield most


def zeros_of(array: Any) -> float | None:
    """The share of entries that are 0 (to 1e-10, as the papers count)."""
    return None if array is None else float(np.mean(np.abs(array) <= 1e-10))


CHUNK = 4_000


def trained(
    task: Task, space: Space, learner: Learner, forms: Forms, most: int, chosen: str = ""
) -> dict[str, Fit]:
    """Learn from the task's triplets until no row rises on validation any more: each row at its own best
    look."""
    fits: dict[str, Fit] = {}
    curves: dict[str, list[tuple[int, float]]] = {row: [] for row in forms}
    behind = dict.fromkeys(forms, 0)
    seconds, done = 0.0, 0
    for count in looks(most):
        for start in range(done, count, CHUNK):
            part = task.triplets[:, start : min(count, start + CHUNK)]
            began = time.process_time()
            learner.learn_many(*(space.rows(rows) for rows in part))
            seconds += time.process_time() - began
        done = count
        for row in [one for one in forms if behind[one] < PATIENCE]:
            began = time.process_time()
            scores, array = forms[row](learner, space)
            forming = time.process_time() - began
            found = validate(task, scores)
            curves[row].append((count, found))
            behind[row] += 1
            if row not in fits or found > fits[row].validation:
                behind[row] = 0
                fits[row] = Fit(scores, found, chosen, count, seconds + forming, zeros_of(array))
        if all(one >= PATIENCE for one in behind.values()):
            break
    return {row: replace(fit, curve=tuple(curves[row])) for row, fit in fits.items()}
