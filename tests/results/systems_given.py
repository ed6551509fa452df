"""What needs no learning from labels, and what could be reached at most."""

from __future__ import annotations

import numpy as np

from tests.results.data import Floats, Ints, Task, dense
from tests.results.systems import Fits, System, bilinear, measured

NEITHER = "Euclidean distance"


def given(task: Task) -> Fits:
    """Distance and cosine of the owner's vectors, and the cosine in the space that is learned in."""
    X, space = task.X, task.space

    def near(queries: Ints, gallery: Ints) -> Floats:
        squares = np.square(raw[gallery]).sum(1)
        return np.asarray(2 * raw[queries] @ raw[gallery].T - squares)

    raw = np.concatenate([dense(view) for view in task.data.views.values()], axis=1)
    if len(task.data.views) > 1:  # descriptors differ in scale: each column as far as it varies
        train = raw[task.parts.train]
        raw = (raw - train.mean(0)) / np.maximum(train.std(0), 1e-6)
    rows = {
        NEITHER: measured(task, near),
        "cosine": measured(task, bilinear(X, normalised=True)),
    }
    if space is not task.given:
        rows["cosine of the space"] = measured(task, bilinear(space.dense, normalised=True))
    return rows


SYSTEMS = (System("given", (NEITHER, "cosine", "cosine of the space"), given, seeds=5),)
