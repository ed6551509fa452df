"""Where OMKS over supports falls below OASIS: learner, kernels, form, budget, features, or clicks.

`python -m tests.results.kernels` measures what is missing and prints the tables; every cell (a set, features,
a number of triplets, a seed) is kept in .cache/results/kernels. Labels, by the protocol of the papers
(TPAMI 36 (2014), section 6.7: 40 objects a class to learn from and 25 to be judged by; here 15 more to choose
by): every object that is judged ranks the others of its part. Every row is judged with its own best C by the
objects to choose by.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from learners.hedge import HedgeConfig, best_beta, first_standing, theta
from learners.kernels.omks_blocks import weigh_rounds
from learners.psd import one_blas_thread
from tests.quality.bench.sets import Ints, load
from tests.results import kernel_clicks
from tests.results.oks_pool import (
    Doubles,
    ObjectPool,
    PoolFit,
    centred,
    centred_exactly,
    learned_cosine,
    less_the_mean,
    printed,
    rbf,
)

CACHE = Path(__file__).parents[2] / ".cache" / "results" / "kernels"
VERSION = 1
"""Of what a cell means: one that was kept under another is made again."""

CS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
DEFAULT_C = CS.index(0.1)
BUDGETS = (3_000, 1_000)
BEST_BETA = 0.99

Pair = tuple[float, float]
"""mAP of the objects to choose by, and of those to be judged by."""

JOINED, PRINTED, CENTRED = "OASIS, joined views", "printed", "centred"


@dataclass(frozen=True)
class PoolCell:
    """What is measured together: a set, features of its views, a number of triplets, a seed."""

    data: str
    features: str
    triplets: int
    seed: int

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return CACHE / f"{self.data}-{self.features}-{self.triplets}-{self.seed}.json"

    def pool(self) -> ObjectPool:
        """Its objects: 10 classes of the photos, 20 of texts, which have fewer of each."""
        classes, each = (10, (40, 15, 25)) if self.data == "photos" else (20, (30, 15, 20))
        return ObjectPool.drawn(load(self.data), self.seed, classes, each)


SETTINGS: Sequence[tuple[str, str, int, int]] = (
    ("photos", "pca", 3_120, 5),
    ("photos", "pca", 12_000, 3),
    ("photos", "pca", 60_000, 3),
    ("photos", "whiten", 3_120, 3),
    ("photos", "given", 3_120, 3),
    ("lsa", "pca", 3_120, 3),
    ("lsa", "pca", 12_000, 3),
)
"""Set, features, triplets, and of how many seeds."""


class PoolRows:
    """Rows of a cell: name -> a pair for every C; one pair alone where there is no C, or it was chosen."""

    def __init__(self, pool: ObjectPool) -> None:
        self._pool, self.found = pool, dict[str, list[Pair]]()

    def put(self, name: str, scores: tuple[Doubles, Doubles]) -> None:
        """Scores of the two parts among themselves."""
        pool = self._pool
        pair = pool.map(scores[0], pool.validation), pool.map(scores[1], pool.test)
        self.found.setdefault(name, []).append(pair)

    def whole(self, name: str, S: Doubles) -> None:
        """Scores of all objects of the pool."""
        parts = self._pool.validation, self._pool.test
        self.put(name, (S[np.ix_(parts[0], parts[0])], S[np.ix_(parts[1], parts[1])]))

    def best(self, name: str) -> int:
        """Number of the best C of a row."""
        return int(np.argmax([validation for validation, _ in self.found[name]]))


def measured(cell: PoolCell) -> Mapping[str, list[Pair]]:
    """The rows of a cell."""
    pool = cell.pool()
    rows, triplets = PoolRows(pool), pool.triplets(cell.triplets, cell.seed)
    views = pool.features(cell.features)
    joined = np.concatenate(views, axis=1) / np.sqrt(len(views))
    rows.whole("Euclidean, joined views", joined @ joined.T)
    families: dict[str, list[Doubles]] = {
        JOINED: [joined @ joined.T],
        "linear": [X @ X.T for X in views],
        PRINTED: [K for X in views for K in printed(X, pool.train)],
        CENTRED: [K for X in views for K in centred(X, pool.train)],
    }
    families["less the sample's mean"] = [less_the_mean(K, pool.train) for K in families[PRINTED]]
    families["centred exactly"] = [centred_exactly(K, pool.train) for K in families[PRINTED]]
    for number, name in enumerate(("RBF 1/2", "RBF 1", "RBF 2", "cosine")):
        for kind in (PRINTED, CENTRED):
            families[f"{name} alone, {kind}"] = families[kind][number::4]
    families["RBF 1 of squared distances"] = [rbf(X, 1.0, pool.train, power=2) for X in views]
    for kind in (PRINTED, CENTRED):
        families[f"OKS-Avg, {kind}"] = [sum(families[kind]) / len(families[kind])]
    for name, kernels in families.items():
        _family(rows, pool, triplets, name, kernels)
    return rows.found


def _family(rows: PoolRows, pool: ObjectPool, triplets: Ints, name: str, kernels: list[Doubles]) -> None:
    """Every C, every rule, and for the best C of one rule the form and the budget."""
    fits: list[list[PoolFit]] = []
    for C in CS:
        fits.append([PoolFit.of(K, pool, triplets, C) for K in kernels])
        parts = [[fit.scores(K, pool, part) for K, fit in zip(kernels, fits[-1], strict=True)] for part in
                 (pool.validation, pool.test)]  # fmt: skip
        for rule, weights in _weights(
            pool, fits[-1], parts[0], all_rules=name in (PRINTED, CENTRED, "linear")
        ):
            rows.put(_row(name, rule), tuple(_sum(weights, scores) for scores in parts))  # type: ignore[arg-type]
    rule = "share" if len(kernels) > 1 else ""
    if name in (JOINED, PRINTED, CENTRED):
        best = rows.best(_row(name, rule))
        weights = _hedged(rule, fits[best]) if rule else np.ones(1)
        for form, without in (("", False), (", without the shared direction", True)):
            S = _sum(
                weights,
                [fit.served(K, pool, 1.5, without) for K, fit in zip(kernels, fits[best], strict=True)],
            )
            rows.whole(f"{_row(name, rule)}, served{form}", learned_cosine(S))
        for budget in BUDGETS if triplets.shape[1] == 12_000 else ():
            kept = [PoolFit.of(K, pool, triplets, CS[best], budget) for K in kernels]
            parts = [[fit.scores(K, pool, part) for K, fit in zip(kernels, kept, strict=True)] for part in
                     (pool.validation, pool.test)]  # fmt: skip
            weights = _hedged(rule, kept) if rule else np.ones(1)
            name_of = f"{_row(name, rule)}, {budget:,} triplets kept"
            rows.put(name_of, tuple(_sum(weights, scores) for scores in parts))  # type: ignore[arg-type]


def _row(name: str, rule: str) -> str:
    return name if name == JOINED or not rule else f"OMKS, {name}, {rule}"


def _sum(weights: Doubles, scores: Sequence[Doubles]) -> Doubles:
    return np.asarray(sum(w * one for w, one in zip(weights, scores, strict=True)))


def _weights(
    pool: ObjectPool, fits: list[PoolFit], validation: list[Doubles], all_rules: bool
) -> Iterator[tuple[str, Doubles]]:
    """Rules and the weights of kernels; "best": OKS-Best, "W": OMKS-W, "U": OMKS-U, "hedge": as printed."""
    if len(fits) == 1:
        yield "", np.ones(1)
        return
    yield "share", _hedged("share", fits)
    if all_rules:
        yield "hedge", _hedged("hedge", fits)
        yield "margins", _hedged("margins", fits)
        yield "U", np.full(len(fits), 1 / len(fits))
        found = np.array([pool.map(scores, pool.validation) for scores in validation])
        yield "W", np.exp(found)
        yield "best", (np.arange(len(fits)) == found.argmax()).astype(np.float64)


def _hedged(rule: Any, fits: list[PoolFit]) -> Doubles:
    """Weights that the margins of the fits come to: the library's own rule; "hedge" with the printed beta."""
    margins = np.ascontiguousarray(np.array([fit.margins for fit in fits]).T)
    beta = best_beta(*margins.shape) if rule == "hedge" else BEST_BETA
    config = HedgeConfig(rule, beta=beta)
    standing = first_standing(config, len(fits))
    code, ln_beta, rate = config.kernel_settings(len(fits))
    weigh_rounds(code, ln_beta, rate, standing, margins, np.ones(margins.shape, np.bool_))
    return theta(config, standing)


def kept(path: Path, make: Any) -> Any:
    """What `make` gives, from the cache if it was made before."""
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["version"] == VERSION:
            return found["rows"]
    began = time.process_time()
    with one_blas_thread():
        rows = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"version": VERSION, "rows": rows, "seconds": time.process_time() - began}
    path.write_text(json.dumps(told), encoding="utf-8")
    print(f"{path.stem}: {told['seconds']:.0f} s", file=sys.stderr, flush=True)
    return rows


def measure(seeds: int) -> None:
    """What is missing, of at most so many seeds each."""
    for seed in range(seeds):
        for data, features, triplets, most in SETTINGS:
            if seed < most:
                cell = PoolCell(data, features, triplets, seed)
                kept(cell.path, lambda cell=cell: measured(cell))
        if seed < kernel_clicks.SEEDS:
            kept(CACHE / f"clicks-{seed}.json", lambda seed=seed: kernel_clicks.measured(seed))


ROWS: Sequence[tuple[str, str]] = (
    ("Euclidean, joined views", "Euclidean"),
    (JOINED, "OASIS on joined views, which is OKS with the linear kernel"),
    ("OMKS, linear, share", "OMKS of linear kernels, a matrix a view"),
    ("OMKS, printed, U", "OMKS-U, printed kernels"),
    ("OMKS, printed, W", "OMKS-W, printed kernels"),
    ("OMKS, printed, best", "OKS-Best, printed kernels"),
    ("OKS-Avg, printed", "OKS-Avg, printed kernels"),
    ("OMKS, printed, hedge", "OMKS, printed kernels, `hedge` as printed"),
    ("OMKS, printed, share", "OMKS, printed kernels, `share`"),
    ("OMKS, printed, margins", "OMKS, printed kernels, `margins`"),
    ("OMKS, centred, U", "OMKS-U, centred kernels"),
    ("OMKS, centred, W", "OMKS-W, centred kernels"),
    ("OMKS, centred, best", "OKS-Best, centred kernels"),
    ("OKS-Avg, centred", "OKS-Avg, centred kernels"),
    ("OMKS, centred, hedge", "OMKS, centred kernels, `hedge` as printed"),
    ("OMKS, centred, share", "OMKS, centred kernels, `share`"),
    ("OMKS, centred, margins", "OMKS, centred kernels, `margins`"),
)
KERNEL_ROWS: Sequence[tuple[str, str]] = (
    *((f"OMKS, {name} alone, {kind}, share", f"{name} alone, {kind}") for name in
      ("RBF 1/2", "RBF 1", "RBF 2", "cosine") for kind in (PRINTED, CENTRED)),
    ("OMKS, RBF 1 of squared distances, share", "RBF 1 of squared distances"),
    ("OMKS, less the sample's mean, share", "all four, less the mean of the sample"),
    ("OMKS, centred exactly, share", "all four, the mean taken out in the space of features"),
)  # fmt: skip
OTHER_ROWS: Sequence[tuple[str, str]] = (
    *((f"{row}, served{form}", f"{told}, served{form}") for row, told in
      ((JOINED, "OASIS"), ("OMKS, printed, share", "OMKS printed"), ("OMKS, centred, share", "OMKS centred"))
      for form in ("", ", without the shared direction") if form == "" or row == "OMKS, printed, share"),
    *((f"{row}, {budget:,} triplets kept", f"{told}, {budget:,} triplets kept") for row, told in
      ((JOINED, "OASIS"), ("OMKS, printed, share", "OMKS printed"), ("OMKS, centred, share", "OMKS centred"))
      for budget in BUDGETS),
)  # fmt: skip


def lines() -> Iterator[str]:
    """The tables in Markdown, of the cells that there are."""
    yield "mAP with the C that validation chose ± its deviation over seeds; in brackets with C = 0.1."
    yield ""
    yield from _table(ROWS)
    yield ""
    yield "Kernels one at a time, and other ways to centre them (OMKS, `share`):"
    yield ""
    yield from _table(KERNEL_ROWS)
    yield ""
    yield "Form and budget, with the C of the row above:"
    yield ""
    yield from _table(OTHER_ROWS)
    yield ""
    yield from kernel_clicks.lines([CACHE / f"clicks-{seed}.json" for seed in range(kernel_clicks.SEEDS)])


def _table(names: Sequence[tuple[str, str]]) -> Iterator[str]:
    columns = [(f"{data}, {features}, {count:,}", _cells(data, features, count, most))
               for data, features, count, most in SETTINGS]  # fmt: skip
    columns = [(head, cells) for head, cells in columns if cells]
    yield "| | " + " | ".join(f"{head} ({len(cells)} seeds)" for head, cells in columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for row, told in names:
        yield (
            f"| {told} | "
            + " | ".join(_value([one[row] for one in cells if row in one]) for _, cells in columns)
            + " |"
        )


def _cells(data: str, features: str, count: int, most: int) -> list[dict[str, list[Pair]]]:
    paths = [PoolCell(data, features, count, seed).path for seed in range(most)]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    return [one["rows"] for one in found if one["version"] == VERSION]


def _value(found: list[list[Pair]]) -> str:
    if not found:
        return ""
    chosen = [max(pairs, key=lambda pair: pair[0])[1] for pairs in found]
    told = f"{np.mean(chosen):.3f}"
    if len(found) > 1:
        told += f" ± {np.std(chosen, ddof=1):.3f}"
    if len(found[0]) > 1:
        told += f" ({np.mean([pairs[DEFAULT_C][1] for pairs in found]):.3f})"
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.results.kernels", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--draw-only", action="store_true", help="measure nothing, take what is there")
    asked = parser.parse_args(arguments)
    if not asked.draw_only:
        measure(asked.seeds)
    print("\n".join(lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
