"""The embeddings of Gong and Lazebnik (CVPR 2011) under their protocol: ridge regression on few and on many
labels, and ranking by the score of a classifier of few positives and negatives.

    python -m tests.results.ridge [--sets photos fashion] [--seeds 5] [--embeddings RFF Nystroem-50]

measures and prints; what was measured before is kept in .cache/results/ridge and not measured again.

Each seed splits a set 60/20/20 into training, test and validation. An embedding is fitted on all training
rows, without labels; so many of them are labelled; rho comes from the validation part, out of eight; the test
part is judged. Classification (sections 4.2, 4.3): the mean over classes of the share classified rightly.
Ranking (section 4.4): l_p labelled rows of a class and l_n of others make a classifier, by whose score the
test part is ranked: average precision of the class at the first 100, mean over ten classes.

W = (X^T X + rho I)^-1 X^T Y without a bias, by scikit-learn. Rows are centred by the mean of the whole
training part, labelled or not (section 3.3), or stay as they are. An embedding is scaled by one number, so
that the mean squared length is 1 and the eight values of rho mean the same for all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import Ridge

from learners import DenseBlock, ViewConfig, average_precision_at, fit_map, ranks_of
from tests.quality.bench.sets import load

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FOLDER = Path(__file__).parents[2] / ".cache" / "results" / "ridge"
VERSION = 1
"""Of what a kept cell means: one that was kept under another is measured again."""
SEEDS = 5

RHOS = (0.0002, 0.002, 0.02, 0.2, 2.0, 20.0, 200.0, 2000.0)
LABELS = (3, 10, 30, 100)
"""Labelled rows of each class; a class with fewer gives all."""
RANKINGS = ((5, 5), (5, 50), (5, 500), (20, 5), (100, 5))
"""(l_p, l_n)."""
CLASSES = 10
"""Most classes that are ranked for, drawn by the seed."""
FIRST = 100


def _histograms(kind: str, **options: Any) -> ViewConfig:
    return ViewConfig("chain", {"maps": [ViewConfig("shares"), ViewConfig(kind, options)]})


LARGE = 10_000
"""More principal directions than any set has columns."""

EMBEDDINGS: Mapping[str, ViewConfig] = {
    "none": ViewConfig("identity"),
    "RFF": ViewConfig("rff", {"components": 2000}),
    "Nystroem-50": ViewConfig("nystroem", {"laplacian": True, "components": 50}),
    "Nystroem-500": ViewConfig("nystroem", {"laplacian": True, "components": 500}),
    "Nystroem-kernel-500": ViewConfig("nystroem", {"components": 500}),
    "PCALap-50": ViewConfig("pcalap"),
    "PCALap-50-weighted": ViewConfig("pcalap", {"weighted": True}),
    "PCALap-all": ViewConfig("pcalap", {"directions": LARGE}),
    "PCALap-all-weighted": ViewConfig("pcalap", {"directions": LARGE, "weighted": True}),
    "RPLap": ViewConfig("rplap"),
}
"""Of any vectors; the numbers are of eigenvectors (Nystroem) and of directions (PCALap)."""

OF_HISTOGRAMS: Mapping[str, ViewConfig] = {
    "shares": ViewConfig("shares"),
    "SQRT": _histograms("sqrt"),
    "HIKE": _histograms("hike"),
    "AddKPCA": _histograms("addkpca"),
    "Nystroem-50-intersection": _histograms("nystroem", laplacian=True, components=50, kernel="intersection"),
    "Nystroem-500-intersection": _histograms(
        "nystroem", laplacian=True, components=500, kernel="intersection"
    ),
    "Nystroem-kernel-500-intersection": _histograms("nystroem", components=500, kernel="intersection"),
}
OF_NUMBERS: Mapping[str, ViewConfig] = {"AddKPCA-gaussian": ViewConfig("addkpca", {"kernel": "gaussian"})}

HISTOGRAMS = {"photos", "fashion"}
"""Sets whose numbers are amounts."""


@dataclass(frozen=True, eq=False)
class VectorSet:
    """rows: float32 [n, d]. labels: class of each. histograms: whether its numbers are amounts, >= 0."""

    rows: npt.NDArray[np.float32]
    labels: Ints
    histograms: bool

    def embeddings(self) -> dict[str, ViewConfig]:
        """Those that make sense of it."""
        return {**EMBEDDINGS, **(OF_HISTOGRAMS if self.histograms else OF_NUMBERS)}


@cache
def vectors(name: str) -> VectorSet:
    """A set of `tests.quality.bench.sets`, its views side by side; "gist": that view of the photos alone."""
    data = load("photos" if name == "gist" else name)
    rows = data.views["gist"] if name == "gist" else data.joined()
    return VectorSet(np.ascontiguousarray(rows, np.float32), data.labels, name in HISTOGRAMS)


SETS = ("gist", "photos", "fashion", "sentences")


@dataclass(frozen=True, eq=False)
class SplitRows:
    """Rows of each part."""

    train: Ints
    test: Ints
    validation: Ints

    @classmethod
    def of(cls, count: int, seed: int) -> SplitRows:
        """60, 20 and 20 per cent at random."""
        order = np.random.default_rng(seed).permutation(count)
        train, test, validation = np.split(order, [int(0.6 * count), int(0.8 * count)])
        return cls(train, test, validation)


@dataclass(frozen=True, eq=False)
class SplitVectors:
    """Embedded rows of each part, float64 [n, k]."""

    train: Doubles
    test: Doubles
    validation: Doubles

    def centred(self) -> SplitVectors:
        """About the mean of the training part."""
        mean = self.train.mean(axis=0)
        return SplitVectors(self.train - mean, self.test - mean, self.validation - mean)


def embed(plan: ViewConfig, rows: npt.NDArray[np.float32], parts: SplitRows, seed: int) -> SplitVectors:
    """All rows under the map fitted on the training part, of mean squared length 1 there."""
    fitted = fit_map(_seeded(plan, seed), DenseBlock(rows[parts.train]))
    mapped = fitted.transform(DenseBlock(rows))
    assert isinstance(mapped, DenseBlock)
    Z = mapped.values.astype(np.float64)
    Z /= np.sqrt(np.square(Z[parts.train]).sum(axis=1).mean())
    return SplitVectors(Z[parts.train], Z[parts.test], Z[parts.validation])


def _seeded(plan: ViewConfig, seed: int) -> ViewConfig:
    if plan.kind == "chain":
        return ViewConfig("chain", {"maps": [_seeded(one, seed) for one in plan.options["maps"]]})
    draws = plan.kind in {"rff", "nystroem", "rplap", "addkpca"}
    return ViewConfig(plan.kind, {**plan.options, "seed": seed}) if draws else plan


def ridge(X: Doubles, Y: Doubles) -> Doubles:
    """W for each of `RHOS`, float64 [8, d, c]."""
    columns = Y.shape[1]
    if columns == 1:  # each target with a rho of its own, in one call
        fitted = Ridge(np.array(RHOS), fit_intercept=False, solver="cholesky").fit(X, np.tile(Y, len(RHOS)))
        return np.asarray(fitted.coef_[:, :, None])
    each = (Ridge(rho, fit_intercept=False, solver="cholesky").fit(X, Y).coef_.T for rho in RHOS)
    return np.stack(list(each))


def class_rate(scores: Doubles, places: Ints) -> float:
    """Mean over classes of the share of its rows whose greatest score is in the column of their class."""
    right = scores.argmax(axis=1) == places
    return float(np.mean([right[places == one].mean() for one in np.unique(places)]))


def classify(parts: SplitRows, Z: SplitVectors, labels: Ints, each: int, seed: int) -> float:
    """The rate on the test part after `each` labels of every class."""
    draw, classes = np.random.default_rng(seed), np.unique(labels)
    own = labels[parts.train]
    chosen = np.concatenate([draw.permutation(np.flatnonzero(own == one))[:each] for one in classes])
    places = np.searchsorted(classes, labels)
    weights = ridge(Z.train[chosen], np.eye(len(classes))[places[parts.train[chosen]]])
    best = max(weights, key=lambda W: class_rate(Z.validation @ W, places[parts.validation]))
    return class_rate(Z.test @ best, places[parts.test])


def rank(
    parts: SplitRows, Z: SplitVectors, labels: Ints, positives: int, negatives: int, seed: int
) -> float | None:
    """Mean over classes of the average precision at the first 100 of the test part, by classifiers of targets
    1 and 0; None where no class has so many training rows."""
    draw, found = np.random.default_rng(seed), []
    for one in draw.permutation(np.unique(labels)):
        is_one = labels[parts.train] == one
        if is_one.sum() < positives or len(found) == CLASSES:
            continue
        own = draw.permutation(np.flatnonzero(is_one))[:positives]
        other = draw.permutation(np.flatnonzero(~is_one))[:negatives]
        chosen = np.concatenate([own, other])
        weights = ridge(Z.train[chosen], is_one[chosen, None].astype(np.float64))[:, :, 0]
        relevant = np.flatnonzero(labels[parts.validation] == one)
        best = max(weights, key=lambda w: _precision(Z.validation @ w, relevant))
        found.append(_precision(Z.test @ best, np.flatnonzero(labels[parts.test] == one)))
    return float(np.mean(found)) if found else None


def _precision(scores: Doubles, relevant: Ints) -> float:
    return average_precision_at(ranks_of(scores, relevant), FIRST)


AS_THEY_ARE = " as they are"


def protocol(data: VectorSet, plan: ViewConfig, seed: int) -> dict[str, float]:
    """One embedding on one split: the rate by labels per class ("30"), the average precision by l_p and l_n
    ("5+50"), both also of rows that are not centred, and how many columns it has."""
    parts = SplitRows.of(len(data.rows), seed)
    Z = embed(plan, data.rows, parts, seed)
    found: dict[str, float] = {"columns": Z.train.shape[1]}
    for rows, how in ((Z.centred(), ""), (Z, AS_THEY_ARE)):
        for each in label_counts(data.labels[parts.train]):
            found[f"{each}{how}"] = classify(parts, rows, data.labels, each, seed)
        for positives, negatives in RANKINGS:
            precision = rank(parts, rows, data.labels, positives, negatives, seed)
            if precision is not None:
                found[f"{positives}+{negatives}{how}"] = precision
    return found


def label_counts(labels: Ints) -> list[int]:
    """Those of `LABELS` that half of the classes have."""
    return [each for each in LABELS if np.median(np.bincount(labels)) >= each]


def cell(name: str, embedding: str, seed: int, folder: Path | None = None) -> dict[str, float]:
    """What `protocol` found, from the folder or measured now."""
    path = (folder or FOLDER) / name / embedding / f"{seed}.json"
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["version"] == VERSION:
            return dict(kept["found"])
    data, began = vectors(name), time.process_time()
    found = protocol(data, data.embeddings()[embedding], seed)
    took = time.process_time() - began
    print(f"ridge, {name}, {embedding}, seed {seed}: {took:.0f} s", file=sys.stderr, flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps({"version": VERSION, "found": found, "took": took}), encoding="utf-8")
    beside.replace(path)
    return found


def measure(
    seeds: int = SEEDS, sets: Sequence[str] = SETS, only: Sequence[str] = (), folder: Path | None = None
) -> None:
    """Every cell that is not kept yet, seed by seed."""
    for seed in range(seeds):
        for name in sets:
            for embedding in vectors(name).embeddings():
                if not only or embedding in only:
                    cell(name, embedding, seed, folder)


def lines(sets: Sequence[str] = SETS, folder: Path | None = None) -> Iterator[str]:
    """Two Markdown tables of each set, of what is kept: means over seeds and standard deviations."""
    for name in sets:
        found: dict[str, list[dict[str, float]]] = {}
        for embedding in vectors(name).embeddings():
            paths = sorted(((folder or FOLDER) / name / embedding).glob("*.json"))
            kept = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
            found[embedding] = [one["found"] for one in kept if one["version"] == VERSION]
        found = {embedding: cells for embedding, cells in found.items() if cells}
        if not found:
            continue
        counts = sorted({len(cells) for cells in found.values()})
        yield f"#### {name}, {' to '.join(map(str, counts))} seeds"
        yield ""
        for heading, ranking in (("share right by labels per class", False), ("AP at 100 by l_p+l_n", True)):
            known = {column: None for cells in found.values() for one in cells for column in one}
            columns = [one for one in known if one != "columns" and ("+" in one) == ranking]
            if not ranking:  # centring changes little there: one column shows it
                columns = [one for one in columns if not one.endswith(AS_THEY_ARE)] + columns[-1:]
            yield from _table(heading, columns, found)


def _table(
    heading: str, columns: Sequence[str], found: Mapping[str, Sequence[Mapping[str, float]]]
) -> Iterator[str]:
    values = {
        (embedding, column): [one[column] for one in cells if column in one]
        for embedding, cells in found.items()
        for column in columns
    }
    best = {
        column: max(np.mean(values[one, column]) for one in found if values[one, column])
        for column in columns
    }
    titles = [column.replace(AS_THEY_ARE, ", not centred") for column in columns]
    yield f"| {heading} | columns | {' | '.join(titles)} |"
    yield "|---" * (len(columns) + 2) + "|"
    for embedding, cells in found.items():
        numbers = [_number(values[embedding, column], best[column]) for column in columns]
        yield f"| {embedding} | {np.mean([one['columns'] for one in cells]):.0f} | {' | '.join(numbers)} |"
    yield ""


def _number(values: Sequence[float], best: float) -> str:
    if not values:
        return ""
    mean, several = np.mean(values), len(values) > 1
    text = f"{mean:.3f}".removeprefix("0")
    text += f" ± {np.std(values, ddof=1):.3f}".replace(" 0.", " .") if several else ""
    return f"**{text}**" if mean == best else text


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for, and print the tables of it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.results.ridge", description="embeddings under ridge regression"
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"splits 0, 1, ... (default {SEEDS})")
    parser.add_argument(
        "--embeddings", nargs="+", default=(), help="only these (default: all that make sense)"
    )
    asked = parser.parse_args(arguments)
    measure(asked.seeds, asked.sets, asked.embeddings)
    print("\n".join(lines(asked.sets)))


if __name__ == "__main__":
    main()
