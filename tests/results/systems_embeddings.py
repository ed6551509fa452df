"""OASIS, as served, behind each embedding of Gong and Lazebnik (CVPR 2011, section 3.2).

What an embedding gives of a view is whitened as the plain views are, so that rows differ in the embedding
alone; sparse rows stay sparse. All rows get as many triplets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from learners import Oasis, OasisConfig, ViewConfig
from tests.results.data import SETS, WHITENED, Space, Task
from tests.results.systems import Fits, System, best_by_row, trained
from tests.results.systems_matrix import served

MOST = 160_000
KEPT = 200
"""Directions of a set of one view that is not in `WHITENED`."""
HISTOGRAMS = ("photos", "tfidf", "fashion")
VECTORS = ("photos", "sentences", "fashion")
NONE = "no embedding"

Settings = Mapping[str, Mapping[str, Any]]
"""In words -> options of the map."""

WIDTHS = (0.5, 1.0, 2.0)
NOT_NEGATIVE, DENSE, FEW = "numbers not below 0", "dense vectors", "numbers not below 0, few enough columns"
WHY: Mapping[str, str] = {
    "SQRT": NOT_NEGATIVE,
    "Nyström, intersection": NOT_NEGATIVE,
    "HIKE": FEW,
    "PCALap": DENSE,
    "RPLap": DENSE,
    "AddKPCA": DENSE,
}
"""What the sets of an embedding have."""
EMBEDDINGS: Mapping[str, tuple[str, tuple[str, ...], Settings]] = {
    NONE: ("unit", SETS, {"": {}}),
    "SQRT": ("sqrt", HISTOGRAMS, {"": {}}),
    "RFF": ("rff", SETS, {f"sigma = {one:g}": {"sigma": one, "components": 512} for one in WIDTHS}),
    "HIKE": ("hike", ("photos", "fashion"), {"": {}}),
    "Nyström, Gaussian": (
        "nystroem",
        SETS,
        {f"sigma = {one:g}": {"sigma": one} for one in WIDTHS},
    ),
    "Nyström, intersection": ("nystroem", HISTOGRAMS, {"": {"kernel": "intersection"}}),
    "Nyström of the Laplacian": (
        "nystroem",
        SETS,
        {f"sigma = {one:g}": {"sigma": one, "laplacian": True} for one in WIDTHS},
    ),
    "PCALap": ("pcalap", VECTORS, {f"sigma = {one:g}": {"sigma": one} for one in WIDTHS}),
    "RPLap": (
        "rplap",
        VECTORS,
        {f"sigma = {one:g}": {"sigma": one, "directions": 300} for one in WIDTHS},
    ),
    "AddKPCA": ("addkpca", VECTORS, {"Gaussian": {"kernel": "gaussian"}}),
}


def space_of(task: Task, kind: str, options: Mapping[str, Any]) -> Space:
    """Each view under the map, and whitened where it is dense."""
    if kind == "nystroem":  # its columns fall in size; whitening would make the least as large as the first
        options = {**options, "components": kept_of(task)}
    first = [ViewConfig("unit"), ViewConfig(kind, options)]
    sparse = task.data.sparse and kind in ("unit", "sqrt")
    last = ViewConfig("unit") if sparse else ViewConfig("whiten", {"components": kept_of(task)})
    key = f"embedded {kind} {dict(options)}"
    space = task.under(key, ViewConfig("chain", {"maps": [*first, last]}))
    task.forget(key)
    return space


def kept_of(task: Task) -> int:
    """Directions that are kept of each view."""
    return WHITENED.get(task.name, KEPT)


def behind(embedding: str, task: Task) -> Fits:
    """OASIS behind an embedding, with each of its settings."""
    kind, _, settings = EMBEDDINGS[embedding]

    def found() -> Iterator[Fits]:
        for told, options in settings.items():
            space = space_of(task, kind, options)
            for C in (0.1, 0.3):
                named = ", ".join(one for one in (f"C = {C:g}", told) if one)
                learner = Oasis(space.dim, OasisConfig(C=C))
                yield trained(task, space, learner, {row_of(embedding): served}, MOST, named)

    return best_by_row(found())


def row_of(embedding: str) -> str:
    """The name of its row."""
    return f"OASIS, served, on {embedding}"


def _name(embedding: str) -> str:
    plain = embedding.lower().replace("ö", "oe").replace(",", "")
    return "on-" + plain.replace(" ", "-")


SYSTEMS = tuple(
    System(
        _name(embedding),
        (row_of(embedding),),
        partial(behind, embedding),
        sets,
        WHY.get(embedding, ""),
        seeds=3,
        edition=2 if kind == "nystroem" else 1,
    )
    for embedding, (kind, sets, _) in EMBEDDINGS.items()
)
